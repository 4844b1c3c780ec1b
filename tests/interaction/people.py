"""Who the tokens of these tests stand for."""

from dataclasses import dataclass

from django.contrib.auth import get_user_model

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


class Users:
    """A verifier to whom a token is the name of a user of the site."""

    async def verify(self, token: str, *, server: str) -> Principal:
        user = await get_user_model().objects.aget(username=token)
        return Principal(issuer="tests", subject=token, user=user)


class Tokens:
    """A verifier to whom a token is the bearer's name."""

    async def verify(self, token: str, *, server: str) -> Principal:
        if token not in KNOWN:
            raise AuthError("invalid_token", "Nobody is called that")
        return Principal(issuer="tests", subject=token, user=Person(token), scopes=SCOPES.get(token, frozenset()))
