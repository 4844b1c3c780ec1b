"""Who the tokens of these tests stand for."""

from dataclasses import dataclass

from mcp_django.auth.principal import Principal
from mcp_django.auth.verifiers import AuthError

KNOWN = ("alice", "bob", "carol", "root", "writer")
SCOPES = {"writer": frozenset({"notes:read", "notes:write"}), "carol": frozenset({"notes:read"})}


@dataclass
class Person:
    """As much of a user as the server looks at, without a row."""

    username: str
    pk: None = None
    is_active: bool = True

    def has_perm(self, permission: str) -> bool:
        """Root may do everything, the others nothing."""
        return self.username == "root"


class Tokens:
    """A verifier to whom a token is the bearer's name."""

    async def verify(self, token: str, *, server: str) -> Principal:
        if token not in KNOWN:
            raise AuthError("invalid_token", "Nobody is called that")
        return Principal(issuer="tests", subject=token, user=Person(token), scopes=SCOPES.get(token, frozenset()))
