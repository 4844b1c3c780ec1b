"""The principal of a connection, verified again while the connection is open."""

import asyncio
from collections.abc import Callable
from time import time

from mcp_django.aio.tasks import start_timer
from mcp_django.auth.principal import is_still_authorized
from mcp_django.protocol.errors import TransportRefusal
from mcp_django.server.ports import Overloaded, Principal
from mcp_django.transports.connection.options import CloseReason
from mcp_django.transports.credentials import Credential


class ConnectionCredential:
    """Credential and principal of a connection; calls `on_lost` at most once."""

    def __init__(
        self, principal: Principal, credential: Credential | None, on_lost: Callable[[CloseReason], None]
    ) -> None:
        self.principal = principal
        self._credential = credential
        self._on_lost = on_lost
        self._expiry_timer: asyncio.TimerHandle | None = None
        self._schedule_expiry()

    def is_known_valid(self) -> bool:
        """Return True without a credential, or if the cache has the same principal."""
        return self._credential is None or self._credential.get_cached() is self.principal

    async def verify(self) -> Principal | None:
        """Return the current principal; None if the credential has become invalid.

        Raises Overloaded if the credential cannot be verified at the moment.
        """
        credential = self._credential
        if credential is None:
            return self.principal

        principal = credential.get_cached()
        if principal is None:
            try:
                principal = await credential.verify()
            except TransportRefusal as refusal:
                if refusal.status >= 500:
                    raise Overloaded("Tokens cannot be verified at the moment; try again later") from None
                self._end(CloseReason.REVOKED)
                return None
        if principal is not self.principal:
            if not is_still_authorized(principal, self.principal):
                same = principal.key == self.principal.key
                self._end(CloseReason.FORBIDDEN if same else CloseReason.REVOKED)
                return None
            self.principal = principal
            self._schedule_expiry()

        return principal

    def stop(self) -> None:
        """Cancel the expiry timer."""
        if self._expiry_timer is not None:
            self._expiry_timer.cancel()
            self._expiry_timer = None

    def _schedule_expiry(self) -> None:
        self.stop()
        expires = self.principal.expires_at
        if expires is not None:
            self._expiry_timer = start_timer(max(0.0, expires - time()), self._end, CloseReason.REVOKED)

    def _end(self, reason: CloseReason) -> None:
        self.stop()
        self._on_lost(reason)
