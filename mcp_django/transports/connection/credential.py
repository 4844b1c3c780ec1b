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
    """Credential and principal of a connection."""

    def __init__(
        self,
        principal: Principal,
        credential: Credential | None,
        *,
        on_change: Callable[[Principal], None],
        on_lost: Callable[[CloseReason], None],
    ) -> None:
        """Set the initial principal, and the callbacks for another one and for the loss of the credential."""
        self.principal = principal
        self._credential = credential
        self._on_change = on_change
        self._on_lost = on_lost
        self._is_stopped = False
        self._expiry_timer: asyncio.TimerHandle | None = None
        self._schedule_expiry()

    def is_known_valid(self) -> bool:
        """Return True without a credential, or if the cache has the same principal."""
        return self._credential is None or self._credential.get_cached() is self.principal

    async def is_valid(self) -> bool:
        """Return True after a verification, which itself ends the connection if necessary."""
        try:
            if not self._is_stopped:
                await self.verify()
        except Overloaded:
            pass  # The credential cannot be verified at the moment.
        return True

    async def verify(self) -> None:
        """Verify the credential; end the connection if it has become invalid.

        Raises Overloaded if the credential cannot be verified at the moment.
        """
        credential = self._credential
        if credential is None:
            return

        principal = credential.get_cached()
        if principal is None:
            try:
                principal = await credential.verify()
            except TransportRefusal as refusal:
                if refusal.status >= 500:
                    raise Overloaded("Tokens cannot be verified at the moment; try again later") from None
                self._on_lost(CloseReason.REVOKED)
                return
        if principal is self.principal:
            return
        if not is_still_authorized(principal, self.principal):
            same = principal.key == self.principal.key
            self._on_lost(CloseReason.FORBIDDEN if same else CloseReason.REVOKED)
            return

        self.principal = principal
        self._on_change(principal)
        self._schedule_expiry()

    def stop(self) -> None:
        """Stop verifying, because the connection has ended."""
        self._is_stopped = True
        self._cancel_expiry()

    def _cancel_expiry(self) -> None:
        if self._expiry_timer is not None:
            self._expiry_timer.cancel()
            self._expiry_timer = None

    def _schedule_expiry(self) -> None:
        self._cancel_expiry()
        expires = self.principal.expires_at
        if expires is not None and not self._is_stopped:
            self._expiry_timer = start_timer(max(0.0, expires - time()), self._on_lost, CloseReason.REVOKED)
