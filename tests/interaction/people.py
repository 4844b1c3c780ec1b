"""Who the tokens of these tests stand for."""

from django.contrib.auth import get_user_model

from mcp_django.auth.principal import Principal
from mcp_django.auth.verifiers import AuthError

KNOWN = ("alice", "bob", "carol")


class Tokens:
    """A verifier to whom a token is the bearer's name."""

    async def verify(self, token: str, *, server: str) -> Principal:
        if token not in KNOWN:
            raise AuthError("invalid_token", "Nobody is called that")
        return Principal(issuer="tests", subject=token, user=get_user_model()(username=token))
