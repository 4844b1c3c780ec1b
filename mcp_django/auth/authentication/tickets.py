"""Tickets for WebSockets: single-use substitutes for credentials in URLs.

A page cannot set headers of a handshake, and an access token must not appear in a URL. The page requests a ticket over
HTTP with its credential and opens the socket with it: once, within seconds, at the same resource. The credential is
sealed in the ticket, so that any worker can open the socket and verify the credential again later.
"""

import hashlib
import secrets
from typing import Final

from django.db import Error as DatabaseFailure

from mcp_django.auth.authentication.verifiers import UNAVAILABLE, AuthError
from mcp_django.auth.requests import AuthRequest
from mcp_django.auth.resource import ProtectedResource
from mcp_django.protocol.errors import InvalidParams
from mcp_django.protocol.headers import Headers
from mcp_django.server.ports import Ledger, Sealer, StateTooLarge

LIFETIME: Final = 30.0
"""Lifetime of a ticket in seconds."""
LONGEST: Final = 6 * 1024
"""Maximum length of a ticket in characters.

Servers and proxies limit the length of URLs.
"""
REFUSED: Final = "The ticket is unknown, used, expired, or not for this server"
CREDENTIALS: Final = (b"authorization", b"cookie")


class Tickets:
    """Issuer and redeemer of tickets."""

    def __init__(self, sealer: Sealer, ledger: Ledger) -> None:
        """`ledger` stores the digests of used tickets."""
        self._sealer, self._ledger = sealer, ledger

    def issue(self, headers: Headers, resource: ProtectedResource) -> str:
        """Issue a ticket for the credentials in these headers.

        Raises:
            AuthError: the credentials are too long.
        """
        held = {name.decode(): headers[name].decode("latin-1") for name in CREDENTIALS if name in headers}
        try:
            sealed = self._sealer.seal({"once": secrets.token_hex(8), **held}, _binding(resource), ttl=LIFETIME)
        except StateTooLarge:
            raise AuthError("invalid_request", "The credential is too long for a ticket") from None
        return sealed

    async def redeem(self, request: AuthRequest, resource: ProtectedResource) -> AuthRequest:
        """Return the request with the credential of its ticket.

        The ticket is marked as used. Raises AuthError.
        """
        ticket = request.ticket
        try:
            held = self._sealer.open(ticket, _binding(resource))
            digest = hashlib.sha256(f"ticket {ticket}".encode()).hexdigest()
            fresh = await self._ledger.spend(digest, ttl=LIFETIME)
        except InvalidParams:
            raise AuthError("invalid_token", REFUSED) from None
        except DatabaseFailure:
            raise AuthError("unavailable", UNAVAILABLE) from None
        if not fresh:
            raise AuthError("invalid_token", REFUSED)
        pairs = [(name, value) for name, value in request.headers.items() if name not in CREDENTIALS]
        pairs += [(name, held[name.decode()].encode("latin-1")) for name in CREDENTIALS if name.decode() in held]
        return request._replace(headers=Headers(pairs), query=b"", is_socket=False)


def _binding(resource: ProtectedResource) -> bytes:
    return repr((resource.server, resource.uri)).encode()
