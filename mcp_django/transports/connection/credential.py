"""The principal of a connection, verified again while the connection is open."""

import asyncio
import contextvars
from collections.abc import Callable
from time import time

from mcp_django.auth.principal import is_as_good
from mcp_django.protocol.errors import TransportRefusal
from mcp_django.server.ports import Overloaded, Principal
from mcp_django.transports.connection.options import Ending
from mcp_django.transports.credentials import Credential


class Standing:
    """Credential and principal of a connection; calls `on_lost` at most once."""

    def __init__(self, principal: Principal, credential: Credential | None, lost: Callable[[Ending], None]) -> None:
        self.principal, self._credential, self._lost = principal, credential, lost
        self._expiry: asyncio.TimerHandle | None = None
        self._await_expiry()

    def is_surely_good(self) -> bool:
        """Return True without a credential, or if the cache has the same principal."""
        return self._credential is None or self._credential.known() is self.principal

    async def renew(self) -> Principal | None:
        """Return the current principal; None if the credential has become invalid.

        Raises Overloaded if the credential cannot be verified at the moment.
        """
        credential = self._credential
        if credential is None:
            return self.principal

        principal = credential.known()
        if principal is None:
            try:
                principal = await credential.verify()
            except TransportRefusal as refusal:
                if refusal.status >= 500:
                    raise Overloaded("Tokens cannot be verified at the moment; try again later") from None
                self._end(Ending.REVOKED)
                return None
        if principal is not self.principal:
            if not is_as_good(principal, self.principal):
                same = principal.key == self.principal.key
                self._end(Ending.FORBIDDEN if same else Ending.REVOKED)
                return None
            self.principal = principal
            self._await_expiry()

        return principal

    def stop(self) -> None:
        """Cancel the expiry timer."""
        if self._expiry is not None:
            self._expiry.cancel()
            self._expiry = None

    def _await_expiry(self) -> None:
        self.stop()
        expires = self.principal.expires_at
        if expires is not None:
            self._expiry = asyncio.get_running_loop().call_later(
                max(0.0, expires - time()), self._end, Ending.REVOKED, context=contextvars.Context()
            )

    def _end(self, ending: Ending) -> None:
        self.stop()
        self._lost(ending)
