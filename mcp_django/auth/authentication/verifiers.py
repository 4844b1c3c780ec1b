"""Verifiers: from a bearer token to a principal, or an error.

Several verifiers can be combined. Only the one that accepts the shape of a token receives it, so a token is never sent
to a verifier that it was not meant for.
"""

import inspect
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, Literal, Protocol, cast

from django.core.exceptions import ImproperlyConfigured
from django.db import Error as DatabaseFailure
from django.db.models import Q
from django.utils import timezone

from mcp_django.auth.principal import PERSONAL_CLIENT_PREFIX, PROJECT_ISSUER, DjangoPrincipal
from mcp_django.auth.resource import ProtectedResource
from mcp_django.models import PersonalAccessToken
from mcp_django.protocol.log_text import get_logger
from mcp_django.server.callables import is_async
from mcp_django.server.ports import Executor, Overloaded

logger = get_logger("mcp_django.auth")

AuthErrorKind = Literal["missing", "invalid_token", "insufficient_scope", "invalid_request", "unavailable"]
STATUS_BY_KIND: dict[AuthErrorKind, int] = {
    "missing": 401,
    "invalid_token": 401,
    "insufficient_scope": 403,
    "invalid_request": 400,
    "unavailable": 503,
}
INVALID_MESSAGE = "The access token is unknown, expired, revoked, or not for this server"
"""The same message for every cause: only the owner of a token may learn the cause."""
UNAVAILABLE_MESSAGE = "Tokens cannot be verified at the moment; try again later"
LAST_USED_INTERVAL = timedelta(minutes=1)
"""Minimum interval between two updates of `last_used_at` of a token."""


class AuthError(Exception):
    """A credential that is rejected.

    `kind` sets the HTTP status: "missing" and "invalid_token" 401, "insufficient_scope" 403, "invalid_request" 400,
    "unavailable" 503. Use "unavailable" when a backend fails, because clients discard invalid tokens. `description` is
    sent to the client. `scopes` are the required scopes. `retry_after` is in seconds.
    """

    def __init__(
        self, kind: AuthErrorKind, description: str = "", *, scopes: tuple[str, ...] = (), retry_after: float = 5.0
    ) -> None:
        super().__init__(f"{kind}: {description}" if description else kind)
        self.kind = kind
        self.description = description
        self.scopes = scopes
        self.retry_after = retry_after

    @property
    def status(self) -> int:
        """HTTP status of the kind."""
        return STATUS_BY_KIND[self.kind]


@contextmanager
def hold_lease(executor: Executor) -> Iterator[None]:
    """Hold a lease of the executor. Its overload becomes a temporary AuthError."""
    try:
        with executor.context():
            yield
    except Overloaded as problem:
        raise AuthError("unavailable", str(problem), retry_after=problem.retry_after) from None


class Verifier(Protocol):
    """Interface of a verifier for one kind of token."""

    def accepts(self, token: str) -> bool:
        """Return True if the token has the shape of this verifier's tokens. Cheap, no I/O.

        A class without this method receives every token.
        """
        return True

    async def verify(self, token: str, *, resource: ProtectedResource) -> DjangoPrincipal:
        """Return the principal of the token at `resource`. Raises AuthError.

        Check everything here: signature or existence, expiry, audience, and that the user is active.

        With a further keyword parameter `request` it receives the AuthRequest. Then it runs for each request, because
        the result is not cached.
        """
        ...


VerifyFunction = Callable[..., Awaitable[DjangoPrincipal]]


def build_verifier(candidate: Any) -> Verifier:
    """Return the verifier that a dotted path in `MCP["AUTH"]` names.

    Allowed are a `Verifier`, a class of them, or an async function like `verify`.

    Raises:
        ImproperlyConfigured: the path names anything else.
    """
    verifier = candidate() if isinstance(candidate, type) else candidate
    verify = getattr(verifier, "verify", verifier)
    name = getattr(candidate, "__qualname__", repr(candidate))
    if not is_async(verify):
        raise ImproperlyConfigured(f"{name} is not a verifier; define `async def verify(self, token, *, resource)`")
    if not _accepts_resource(verify):
        raise ImproperlyConfigured(
            f"{name} does not accept the resource that a token was issued for; write "
            "`async def verify(self, token, *, resource)`, where resource.server is the alias"
        )
    return cast(Verifier, verifier if hasattr(verifier, "accepts") else _AnyTokenVerifier(verify))


def _accepts_resource(verify: Any) -> bool:
    try:
        parameters = inspect.signature(verify).parameters.values()
    except (TypeError, ValueError):
        return True
    return any(one.name == "resource" or one.kind is one.VAR_KEYWORD for one in parameters)


class _AnyTokenVerifier:
    """A verifier without an `accepts` method."""

    def __init__(self, verify: VerifyFunction) -> None:
        self.verify = verify

    def accepts(self, token: str) -> bool:
        return True


class PersonalTokenVerifier:
    """Verifier of PersonalAccessToken rows.

    It needs one indexed query, and at most one write a minute for each token.
    """

    def accepts(self, token: str) -> bool:
        """Return True if the token has this project's format and a valid checksum."""
        return PersonalAccessToken.is_well_formed(token)

    async def verify(self, token: str, *, resource: ProtectedResource) -> DjangoPrincipal:
        """Return the principal of the token's owner.

        Tokens without an audience are valid at every server.
        """
        try:
            row = await self._find(token)
            if row is None or not row.is_usable or not row.user.is_active or row.audience not in ("", resource.server):
                raise AuthError("invalid_token", INVALID_MESSAGE)
            await self._update_last_used(row)
        except DatabaseFailure as problem:
            logger.error("Personal access tokens cannot be read: %s", problem)
            raise AuthError("unavailable", UNAVAILABLE_MESSAGE) from None
        return build_token_principal(row)

    def reload(self, principal: DjangoPrincipal) -> DjangoPrincipal | None:
        """Return the principal of the token as stored now. Its own expiry ends it, as it is not refreshed."""
        number = principal.client_id.removeprefix(PERSONAL_CLIENT_PREFIX)
        if principal.issuer != PROJECT_ISSUER or number == principal.client_id or not number.isdecimal():
            return None
        row = PersonalAccessToken.objects.select_related("user").filter(pk=int(number)).first()
        if row is None or not row.is_usable or not row.user.is_active or str(row.user.pk) != principal.subject:
            raise AuthError("invalid_token", INVALID_MESSAGE)
        current = build_token_principal(row)
        if current.audience != principal.audience and current.audience is not None:
            raise AuthError("invalid_token", INVALID_MESSAGE)
        return current

    async def _find(self, token: str) -> PersonalAccessToken | None:
        rows = PersonalAccessToken.objects.select_related("user")
        return await rows.filter(token_hash=PersonalAccessToken.hash(token)).afirst()

    async def _update_last_used(self, row: PersonalAccessToken) -> None:
        now = timezone.now()
        if row.last_used_at is not None and now - row.last_used_at < LAST_USED_INTERVAL:
            return
        # The condition is repeated in the statement, for concurrent workers. update() sends no signal, so caches stay
        # valid.
        due = PersonalAccessToken.objects.filter(
            Q(last_used_at=None) | Q(last_used_at__lte=now - LAST_USED_INTERVAL), pk=row.pk
        )
        try:
            await due.aupdate(last_used_at=now)
        except DatabaseFailure as problem:
            # On a read-only database tokens are still valid.
            logger.warning("Last use of a personal access token could not be saved: %s", problem)


def build_token_principal(row: PersonalAccessToken) -> DjangoPrincipal:
    """Return the principal of a personal access token, before grants filter its scopes."""
    user: Any = row.user
    return DjangoPrincipal(
        issuer=PROJECT_ISSUER,
        subject=str(user.pk),
        # Each token is a separate client: its sessions are not available to the bearer of another token.
        client_id=f"{PERSONAL_CLIENT_PREFIX}{row.pk}",
        user=user,
        scopes=frozenset(row.scopes),
        expires_at=None if row.expires_at is None else row.expires_at.timestamp(),
        kind="token",
        token_id=row.pk,
        audience=row.audience or None,
    )
