"""Tickets for WebSockets: single-use substitutes for credentials in URLs.

A page cannot set headers of a handshake, and an access token must not appear in a URL. The page requests a ticket over
HTTP with its credential and opens the socket with it: once, within seconds, at the same resource. The credential is
sealed in the ticket, so that any worker can open the socket and verify the credential again later.
"""

import hashlib
import secrets
from typing import Final

from django.db import Error as DatabaseFailure

from mcp_django.auth.authentication.verifiers import UNAVAILABLE_MESSAGE, AuthError
from mcp_django.auth.requests import AuthRequest
from mcp_django.auth.resource import ProtectedResource
from mcp_django.protocol.errors import InvalidParams
from mcp_django.protocol.headers import Headers
from mcp_django.server.ports import IdempotencyStore, Sealer, StateTooLarge

TICKET_LIFETIME_SECONDS: Final = 30.0
MAX_TICKET_CHARS: Final = 6 * 1024
"""Maximum length of a ticket in characters.

Servers and proxies limit the length of URLs.
"""
REFUSED_MESSAGE: Final = "The ticket is unknown, used, expired, or not for this server"
CREDENTIAL_HEADERS: Final = ("authorization", "cookie")


class SocketTickets:
    """Issuer and redeemer of tickets."""

    def __init__(self, sealer: Sealer, idempotency_store: IdempotencyStore) -> None:
        """`ledger` stores the digests of used tickets."""
        self._sealer = sealer
        self._idempotency_store = idempotency_store

    def issue(self, headers: Headers, resource: ProtectedResource) -> str:
        """Issue a ticket for the credentials in these headers.

        Raises:
            AuthError: the credentials are too long.
        """
        credentials = {name: headers[name] for name in CREDENTIAL_HEADERS if name in headers}
        try:
            sealed = self._sealer.seal(
                {"once": secrets.token_hex(8), **credentials}, _binding(resource), ttl=TICKET_LIFETIME_SECONDS
            )
        except StateTooLarge:
            raise AuthError("invalid_request", "The credential is too long for a ticket") from None
        return sealed

    async def redeem(self, request: AuthRequest, resource: ProtectedResource) -> AuthRequest:
        """Return the request with the credential of its ticket.

        The ticket is marked as used. Raises AuthError.
        """
        ticket = request.ticket
        try:
            credentials = self._sealer.unseal(ticket, _binding(resource))
            digest = hashlib.sha256(f"ticket {ticket}".encode()).hexdigest()
            is_unused = await self._idempotency_store.consume(digest, ttl=TICKET_LIFETIME_SECONDS)
        except InvalidParams:
            raise AuthError("invalid_token", REFUSED_MESSAGE) from None
        except DatabaseFailure:
            raise AuthError("unavailable", UNAVAILABLE_MESSAGE) from None
        if not is_unused:
            raise AuthError("invalid_token", REFUSED_MESSAGE)
        headers = dict(request.headers)
        for name in CREDENTIAL_HEADERS:
            headers.pop(name, None)
            if name in credentials:
                headers[name] = credentials[name]
        return request._replace(headers=Headers.from_text(headers), query="", is_socket=False)


def _binding(resource: ProtectedResource) -> bytes:
    return repr((resource.server, resource.uri)).encode()
