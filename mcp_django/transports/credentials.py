"""What somebody proved who they are with, and goes on with for longer than one request."""

from time import time

from mcp_django.auth.authentication.authenticator import Authenticator
from mcp_django.auth.authentication.session import KIND as SESSION
from mcp_django.auth.principal import LOCAL, is_as_good
from mcp_django.auth.requests import AuthRequest
from mcp_django.protocol.errors import TransportRefusal
from mcp_django.protocol.headers import Headers
from mcp_django.server.ports import Principal


class Credential:
    """What proved who a client is, to be verified again: a bearer token may expire, be revoked, or lose scopes; whom
    callers of this machine act as may be deactivated.
    """

    __slots__ = ("_authenticator", "_request")

    def __init__(self, authenticator: Authenticator, request: AuthRequest, *, keep: bytes = b"authorization") -> None:
        """Of the headers, the one that authenticates is kept; and where the project's functions say what a token has to
        be good for, those that they may look at.
        """
        self._authenticator = authenticator
        if authenticator.varies:
            # A stream is no request of a page, whose Origin was looked at when it was opened.
            headers = Headers([(name, value) for name, value in request.headers.items() if name != b"origin"])
        else:
            headers = Headers([(keep, request.headers.get(keep, b""))])
        self._request = request._replace(headers=headers, method="GET", query=b"", is_socket=False)

    @classmethod
    def of(cls, principal: Principal, authenticator: Authenticator, request: AuthRequest) -> "Credential | None":
        """That of a principal whom this request has authenticated just now. None for the local principal, unless it
        acts as a user.
        """
        if getattr(principal, "kind", None) == SESSION:
            return cls(authenticator, request, keep=b"cookie")
        if principal.key != LOCAL:
            return cls(authenticator, request)
        return None if principal.user is None else cls(authenticator, request, keep=b"host")

    def known(self) -> Principal | None:
        """Who it stands for, if that is known without waiting: it was verified a moment ago."""
        return self._authenticator.known(self._request)

    async def verify(self) -> Principal:
        """Who it stands for now. Raises TransportRefusal, with a status of 500 or more when nobody can say."""
        return self.known() or await self._authenticator.authenticate(self._request)


class Warrant:
    """What a stream goes on with: its credential, which has to be good for as much as when the stream was opened."""

    __slots__ = ("_credential", "_principal")

    def __init__(self, credential: Credential, principal: Principal) -> None:
        self._credential, self._principal = credential, principal

    @classmethod
    def of(cls, principal: Principal, authenticator: Authenticator, request: AuthRequest) -> "Warrant | None":
        """That of a principal whom this request has authenticated just now. None for the local principal, unless it
        acts as a user.
        """
        credential = Credential.of(principal, authenticator, request)
        return None if credential is None else cls(credential, principal)

    def is_surely_good(self) -> bool:
        """Is it good, without asking anybody? False when that has to be asked."""
        known = self._credential.known()
        return known is not None and is_as_good(known, self._principal)

    async def is_good(self) -> bool:
        """Is it good now? Yes, while that cannot be found out, unless it has expired."""
        expires = self._principal.expires_at
        if expires is not None and expires <= time():
            return False
        try:
            return is_as_good(await self._credential.verify(), self._principal)
        except TransportRefusal as refusal:
            return refusal.status >= 500
