"""Who the client of a process is that serves on stdio.

Whoever can start the process has the project's settings, and with them its database: a user or a token says what the
client may do, and keeps nobody out who could not get in anyway.
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
    """As `acting_as`, with what finds out later whether the user is still active. The local principal has no such
    credential. Raises CommandError, for a user who is not active too.
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
    """As the bearer of `token`, over HTTP. Raises CommandError."""
    if get_settings().auth == ("none",):
        raise CommandError('MCP["AUTH"] is "none", which takes no tokens; name a user instead, or allow "token"')
    try:
        credential = Credential(authenticator(alias), _bearer(token))
        return await credential.verify(), credential
    except TransportRefusal as refusal:
        said = jsonrpc.loads(refusal.body)["error"]["message"] if refusal.body else "it was refused"
        raise CommandError(f"The token is not accepted: {said}") from None


def _bearer(token: str) -> AuthRequest:
    return AuthRequest(Headers([(b"authorization", b"Bearer " + token.encode("utf-8", "surrogateescape"))]))


class _Active:
    """A verifier for which there is one user."""

    def __init__(self, principal: Principal) -> None:
        self._principal = principal

    def accepts(self, token: str) -> bool:
        return True

    async def verify(self, token: str, *, resource: ProtectedResource) -> Principal:
        """The user as they are now. Raises AuthError."""
        before = self._principal
        try:
            user: Any = await get_user_model()._default_manager.filter(pk=before.user.pk).afirst()
        except Error:
            raise AuthError("unavailable", "The user cannot be read at the moment") from None
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
