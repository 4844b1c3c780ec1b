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
from mcp_django.auth.authentication.verifiers import INVALID_MESSAGE, AuthError
from mcp_django.auth.principal import DjangoPrincipal
from mcp_django.auth.requests import AuthRequest
from mcp_django.auth.resource import ProtectedResource
from mcp_django.conf import get_settings
from mcp_django.management.command_options import get_command_principal
from mcp_django.protocol import jsonrpc
from mcp_django.protocol.errors import TransportRefusal
from mcp_django.protocol.headers import Headers
from mcp_django.server import ports
from mcp_django.transports.credentials import Credential
from mcp_django.wiring import create_authenticator, get_services

Identity = tuple[ports.Principal, Credential | None]


def identify_user(alias: str, username: str | None, scopes: Iterable[str] | None) -> Identity:
    """Return the principal of a user, and a credential to detect deactivation.

    The local principal has no such credential. Raises CommandError, also for an inactive user.
    """
    principal = get_command_principal(username, scopes)
    user = principal.user
    if user is not None and not user.is_active:
        raise CommandError(f"The user {user.get_username()!r} is not active")
    if username is None:
        return principal, None
    user_authenticator = Authenticator(
        alias, executor=get_services().executor, verifiers=[_ActiveUserVerifier(principal)]
    )
    return principal, Credential(user_authenticator, _create_bearer_request("user"))


async def identify_token_bearer(alias: str, token: str) -> Identity:
    """Return the principal of `token`, authenticated as over HTTP.

    Raises CommandError.
    """
    if get_settings().auth == ("none",):
        raise CommandError('MCP["AUTH"] is "none", so tokens are not accepted; name a user, or add "token"')
    try:
        credential = Credential(create_authenticator(alias), _create_bearer_request(token))
        return await credential.verify(), credential
    except TransportRefusal as refusal:
        reason = jsonrpc.loads(refusal.body)["error"]["message"] if refusal.body else "no reason given"
        raise CommandError(f"The token was rejected: {reason}") from None


def _create_bearer_request(token: str) -> AuthRequest:
    return AuthRequest(Headers([(b"authorization", b"Bearer " + token.encode("utf-8", "surrogateescape"))]))


class _ActiveUserVerifier:
    """A verifier that accepts any token for one user."""

    def __init__(self, principal: DjangoPrincipal) -> None:
        self._principal = principal

    def accepts(self, token: str) -> bool:
        return True

    async def verify(self, token: str, *, resource: ProtectedResource) -> DjangoPrincipal:
        """Return the user's current principal. Raises AuthError."""
        principal = self._principal
        try:
            user: Any = await get_user_model()._default_manager.filter(pk=principal.user.pk).afirst()
        except Error:
            raise AuthError("unavailable", "The user is temporarily unavailable") from None

        if user is None or not user.is_active:
            raise AuthError("invalid_token", INVALID_MESSAGE)
        return DjangoPrincipal(
            issuer=principal.issuer,
            subject=principal.subject,
            client_id=principal.client_id,
            user=user,
            scopes=principal.scopes,
            kind=principal.kind,
        )
