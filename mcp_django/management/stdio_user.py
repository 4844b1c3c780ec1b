"""Principal of the client of a stdio server process.

Any user who can start the process has the project's settings and database anyway. A user or token limits the client,
but protects nothing from that user.
"""

from collections.abc import Iterable
from typing import Any

from django.contrib.auth import get_user_model
from django.core.management.base import CommandError
from django.db import Error

from mcp_django.auth.authentication.authenticator import Authenticator
from mcp_django.auth.authentication.verifiers import INVALID, AuthError
from mcp_django.auth.principal import Principal
from mcp_django.auth.requests import AuthRequest
from mcp_django.auth.resource import ProtectedResource
from mcp_django.conf import get_settings
from mcp_django.management.user_option import acting_as
from mcp_django.protocol import jsonrpc
from mcp_django.protocol.errors import TransportRefusal
from mcp_django.protocol.headers import Headers
from mcp_django.server import ports
from mcp_django.transports.credentials import Credential
from mcp_django.wiring import authenticator, executor

Identity = tuple[ports.Principal, Credential | None]


def as_user(alias: str, username: str | None, scopes: Iterable[str] | None) -> Identity:
    """Return the principal of a user, and a credential to detect deactivation.

    The local principal has no such credential. Raises CommandError, also for an inactive user.
    """
    principal = acting_as(username, scopes)
    user = principal.user
    if user is not None and not user.is_active:
        raise CommandError(f"The user {user.get_username()!r} is not active")
    if username is None:
        return principal, None
    known = Authenticator(alias, executor=executor(), verifiers=[_Active(principal)])
    return principal, Credential(known, _bearer("user"))


async def with_token(alias: str, token: str) -> Identity:
    """Return the principal of `token`, authenticated as over HTTP.

    Raises CommandError.
    """
    if get_settings().auth == ("none",):
        raise CommandError('MCP["AUTH"] is "none", so tokens are not accepted; name a user, or add "token"')
    try:
        credential = Credential(authenticator(alias), _bearer(token))
        return await credential.verify(), credential
    except TransportRefusal as refusal:
        said = jsonrpc.loads(refusal.body)["error"]["message"] if refusal.body else "no reason given"
        raise CommandError(f"The token was rejected: {said}") from None


def _bearer(token: str) -> AuthRequest:
    return AuthRequest(Headers([(b"authorization", b"Bearer " + token.encode("utf-8", "surrogateescape"))]))


class _Active:
    """A verifier that accepts any token for one user."""

    def __init__(self, principal: Principal) -> None:
        self._principal = principal

    def accepts(self, token: str) -> bool:
        return True

    async def verify(self, token: str, *, resource: ProtectedResource) -> Principal:
        """Return the user's current principal. Raises AuthError."""
        before = self._principal
        try:
            user: Any = await get_user_model()._default_manager.filter(pk=before.user.pk).afirst()
        except Error:
            raise AuthError("unavailable", "The user is temporarily unavailable") from None

        if user is None or not user.is_active:
            raise AuthError("invalid_token", INVALID)
        return Principal(
            issuer=before.issuer,
            subject=before.subject,
            client_id=before.client_id,
            user=user,
            scopes=before.scopes,
            kind=before.kind,
        )
