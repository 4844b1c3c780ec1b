"""Verifiers for the tokens of these tests."""

from dataclasses import dataclass
from typing import Any

from django.contrib.auth import get_user_model

from mcp_django.auth.authentication.verifiers import AuthError
from mcp_django.auth.principal import DjangoPrincipal
from mcp_django.auth.resource import ProtectedResource

KNOWN = ("alice", "bob", "carol", "painter", "root", "writer")
SCOPES = {
    "writer": frozenset({"notes:read", "notes:write"}),
    "carol": frozenset({"notes:read"}),
    "painter": frozenset({"panels:write"}),
}


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
    """A verifier that takes a token for the name of a user of the site."""

    async def verify(self, token: str, *, resource: ProtectedResource) -> DjangoPrincipal:
        user = await get_user_model().objects.aget(username=token)
        return DjangoPrincipal(issuer="tests", subject=token, user=user)


class Tokens:
    """A verifier that takes a token for the name of its bearer."""

    async def verify(self, token: str, *, resource: ProtectedResource) -> DjangoPrincipal:
        if token not in KNOWN:
            raise AuthError("invalid_token", "Nobody is called that")
        return DjangoPrincipal(issuer="tests", subject=token, user=Person(token), scopes=SCOPES.get(token, frozenset()))


class Clients:
    """A verifier of tokens "user.client.number": the user, the program and the token's generation."""

    async def verify(self, token: str, **where: Any) -> DjangoPrincipal:
        subject, client, _ = token.split(".")
        return DjangoPrincipal(issuer="tests", subject=subject, client_id=client, user=Person(subject))


VOUCHED = "vouched"


class Vouched:
    """A verifier of one token of an issuer, for a person without a user in this project."""

    def accepts(self, token: str) -> bool:
        return token == VOUCHED

    async def verify(self, token: str, *, resource: ProtectedResource) -> DjangoPrincipal:
        return DjangoPrincipal(
            issuer="https://login.example",
            subject="u 1",
            client_id="desk",
            scopes=frozenset({"notes:read"}),
            claims={"org": "acme", "roles": ("reader",)},
        )


def scopes_of_the_host(request: Any) -> list[str]:
    """Return the scopes that every request needs, by the request."""
    return ["notes:read"] if request.headers["host"] == "elsewhere.example" else []
