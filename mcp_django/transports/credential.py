"""What somebody proved who they are with, and goes on with for longer than one request."""

from ..auth.authenticate import Authenticator
from ..auth.principal import LOCAL, is_as_good
from ..protocol.errors import TransportRefusal
from ..protocol.headers import Headers
from ..server.ports import Principal


class Credential:
    """What proved who a client is, to be verified again: a bearer token may expire, be revoked, or lose scopes; whom
    callers of this machine act as may be deactivated.
    """

    __slots__ = ("_authenticator", "_headers", "_peer")

    def __init__(
        self, authenticator: Authenticator, headers: Headers, peer: str | None = None, *, keep: bytes = b"authorization"
    ) -> None:
        """Of `headers`, the one that authenticates is kept."""
        self._authenticator, self._peer = authenticator, peer
        self._headers = Headers([(keep, headers.get(keep, b""))])

    @classmethod
    def of(
        cls, principal: Principal, authenticator: Authenticator, headers: Headers, peer: str | None
    ) -> "Credential | None":
        """That of a principal whom these headers, all of them, have authenticated just now. None for the local
        principal, unless it acts as a user.
        """
        if principal.key != LOCAL:
            return cls(authenticator, headers)
        return None if principal.user is None else cls(authenticator, headers, peer, keep=b"host")

    def known(self) -> Principal | None:
        """Who it stands for, if that is known without waiting: it was verified a moment ago."""
        return self._authenticator.known(self._headers, self._peer)

    async def verify(self) -> Principal:
        """Who it stands for now. Raises TransportRefusal, with a status of 500 or more when nobody can say."""
        return self.known() or await self._authenticator.authenticate(self._headers, peer=self._peer)

    async def is_good(self, before: Principal) -> bool:
        """Would it be accepted now, for as much as `before`? Yes, while that cannot be found out."""
        try:
            return is_as_good(await self.verify(), before)
        except TransportRefusal as refusal:
            return refusal.status >= 500
