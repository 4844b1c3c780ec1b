"""Credentials of open streams and connections, which are verified repeatedly."""

from time import time

from mcp_django.auth.authentication.authenticator import Authenticator
from mcp_django.auth.authentication.session import SESSION_KIND
from mcp_django.auth.principal import LOCAL, is_still_authorized
from mcp_django.auth.requests import AuthRequest
from mcp_django.protocol.errors import TransportRefusal
from mcp_django.protocol.headers import Headers
from mcp_django.server.ports import Principal


class Credential:
    """A credential of a client, to be verified again.

    A bearer token may expire, be revoked, or lose scopes. The user that local callers act as may be deactivated.
    """

    __slots__ = ("_authenticator", "_request")

    def __init__(self, authenticator: Authenticator, request: AuthRequest, *, header: bytes = b"authorization") -> None:
        """Copy the part of a request that authenticates it.

        Only `header` is kept, unless functions of the project read the request. Those read its headers again.
        """
        self._authenticator = authenticator
        if authenticator.reads_request:
            # A stream is not a request of a page; its Origin was checked when it was opened.
            headers = request.headers.without({b"origin"})
        else:
            headers = Headers([(header, request.headers.wire.get(header, b""))])
        self._request = request._replace(headers=headers, method="GET", query="", is_socket=False)

    @classmethod
    def from_principal(
        cls, principal: Principal, authenticator: Authenticator, request: AuthRequest
    ) -> "Credential | None":
        """Create the credential of a principal that this request has just authenticated.

        Returns None for the local principal, unless it acts as a user.
        """
        if getattr(principal, "kind", None) == SESSION_KIND:
            return cls(authenticator, request, header=b"cookie")
        if principal.key != LOCAL:
            return cls(authenticator, request)
        return None if principal.user is None else cls(authenticator, request, header=b"host")

    def get_cached(self) -> Principal | None:
        """Return the cached principal of the credential, or None. Never blocks."""
        return self._authenticator.get_cached(self._request)

    async def verify(self) -> Principal:
        """Verify the credential and return its principal.

        Raises:
            TransportRefusal: with a status of 500 or more if it cannot be verified at the moment.
        """
        return self.get_cached() or await self._authenticator.authenticate(self._request)


class StreamCredential:
    """The credential of a stream, which must keep its initial rights."""

    __slots__ = ("_credential", "_principal")

    def __init__(self, credential: Credential, principal: Principal) -> None:
        self._credential = credential
        self._principal = principal

    @classmethod
    def from_principal(
        cls, principal: Principal, authenticator: Authenticator, request: AuthRequest
    ) -> "StreamCredential | None":
        """Create the credential of a principal that this request has just authenticated.

        Returns None for the local principal, unless it acts as a user.
        """
        credential = Credential.from_principal(principal, authenticator, request)
        return None if credential is None else cls(credential, principal)

    def is_known_valid(self) -> bool:
        """Return True if the cache proves that the credential is valid; never blocks.

        False means that it must be verified.
        """
        cached = self._credential.get_cached()
        return cached is not None and is_still_authorized(cached, self._principal)

    async def is_valid(self) -> bool:
        """Return True if the credential is valid, or unexpired and unverifiable now."""
        expires = self._principal.expires_at
        if expires is not None and expires <= time():
            return False
        try:
            return is_still_authorized(await self._credential.verify(), self._principal)
        except TransportRefusal as refusal:
            return refusal.status >= 500
