"""Credentials of open streams and connections, which are verified repeatedly."""

from time import time

from mcp_django.auth.authentication.authenticator import Authenticator
from mcp_django.auth.authentication.session import KIND as SESSION
from mcp_django.auth.principal import LOCAL, is_as_good
from mcp_django.auth.requests import AuthRequest
from mcp_django.protocol.errors import TransportRefusal
from mcp_django.protocol.headers import Headers
from mcp_django.server.ports import Principal


class Credential:
    """A credential of a client, to be verified again.

    A bearer token may expire, be revoked, or lose scopes. The user that local callers act as may be deactivated.
    """

    __slots__ = ("_authenticator", "_request")

    def __init__(self, authenticator: Authenticator, request: AuthRequest, *, keep: bytes = b"authorization") -> None:
        """Copy the part of a request that authenticates it.

        Only `header` is kept, unless functions of the project choose the resource of a token by the request. Those
        functions need all headers.
        """
        self._authenticator = authenticator
        if authenticator.varies:
            # A stream is not a request of a page; its Origin was checked when it was opened.
            headers = Headers([(name, value) for name, value in request.headers.items() if name != b"origin"])
        else:
            headers = Headers([(keep, request.headers.get(keep, b""))])
        self._request = request._replace(headers=headers, method="GET", query=b"", is_socket=False)

    @classmethod
    def of(cls, principal: Principal, authenticator: Authenticator, request: AuthRequest) -> "Credential | None":
        """Create the credential of a principal that this request has just authenticated.

        Returns None for the local principal, unless it acts as a user.
        """
        if getattr(principal, "kind", None) == SESSION:
            return cls(authenticator, request, keep=b"cookie")
        if principal.key != LOCAL:
            return cls(authenticator, request)
        return None if principal.user is None else cls(authenticator, request, keep=b"host")

    def known(self) -> Principal | None:
        """Return the cached principal of the credential, or None. Never blocks."""
        return self._authenticator.known(self._request)

    async def verify(self) -> Principal:
        """Verify the credential and return its principal.

        Raises:
            TransportRefusal: with a status of 500 or more if it cannot be verified at the moment.
        """
        return self.known() or await self._authenticator.authenticate(self._request)


class Warrant:
    """The credential of a stream, which must keep its initial rights."""

    __slots__ = ("_credential", "_principal")

    def __init__(self, credential: Credential, principal: Principal) -> None:
        self._credential, self._principal = credential, principal

    @classmethod
    def of(cls, principal: Principal, authenticator: Authenticator, request: AuthRequest) -> "Warrant | None":
        """Create the credential of a principal that this request has just authenticated.

        Returns None for the local principal, unless it acts as a user.
        """
        credential = Credential.of(principal, authenticator, request)
        return None if credential is None else cls(credential, principal)

    def is_surely_good(self) -> bool:
        """Return True if the cache proves that the credential is valid; never blocks.

        False means that it must be verified.
        """
        known = self._credential.known()
        return known is not None and is_as_good(known, self._principal)

    async def is_good(self) -> bool:
        """Return True if the credential is valid, or unexpired and unverifiable now."""
        expires = self._principal.expires_at
        if expires is not None and expires <= time():
            return False
        try:
            return is_as_good(await self._credential.verify(), self._principal)
        except TransportRefusal as refusal:
            return refusal.status >= 500
