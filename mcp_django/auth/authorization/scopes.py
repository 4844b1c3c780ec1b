"""Effective scopes of a verified principal: delegated and implied ones, filtered.

Three steps apply, in this order:

1. `SCOPE_IMPLIES` adds included scopes.
2. The server's `AUTHORIZER`, a function of the project, may remove scopes.
3. A scope with a grant (`ScopeGrant`) is kept only for the holders that the grant names.
"""

import inspect
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from mcp_django import conf
from mcp_django.auth.authorization.rule_cache import RULE_CACHE, Grants, RuleCache
from mcp_django.auth.principal import (
    ALL_SCOPES,
    PERSONAL_CLIENT_PREFIX,
    PROJECT_ISSUER,
    DjangoPrincipal,
    Run,
    get_group_names,
    load_groups,
    run_in_thread,
)
from mcp_django.protocol.log_text import get_logger
from mcp_django.server.callables import accepts_keyword, is_async

logger = get_logger("mcp_django.auth")

Authorize = Callable[..., Any]
"""`authorize(principal, resource=…)`, sync or async, optionally with `request=…`.

Return the principal, optionally with fewer scopes, or None to refuse it.
"""
FilterScopes = Callable[..., Awaitable[DjangoPrincipal]]
"""Type of `ScopeFilter.filter_scopes`, for dependency injection."""


class PrincipalRefused(Exception):
    """Refusal of a principal by the project's authorizer or a grant."""


class ScopeHierarchy:
    """Scopes and the scopes that they include, resolved once.

    See basic/authorization, scope hierarchies.
    """

    def __init__(self, implies: Mapping[str, Iterable[str]] = MappingProxyType({})) -> None:
        self._closures = {scope: _compute_closure(scope, implies) for scope in implies}

    def expand(self, scopes: frozenset[str]) -> frozenset[str]:
        """Return the scopes and all scopes that they include, directly or indirectly."""
        if scopes is ALL_SCOPES or not self._closures or self._closures.keys().isdisjoint(scopes):
            return scopes
        return scopes.union(*(self._closures[scope] for scope in scopes if scope in self._closures))


def _compute_closure(scope: str, implies: Mapping[str, Iterable[str]]) -> frozenset[str]:
    reached: set[str] = set()
    waiting = [scope]
    while waiting:
        current = waiting.pop()
        if current not in reached:
            reached.add(current)
            waiting.extend(implies.get(current, ()))
    return frozenset(reached)


def is_scope_denied(principal: DjangoPrincipal, scopes: Iterable[str], grants: Grants, groups: frozenset[str]) -> bool:
    """Return True if the principal must not hold one of `scopes`.

    Delegation does not matter. `groups` are the groups of its user.
    """
    return bool(grants) and any(scope in grants and not _can_hold(principal, scope, grants, groups) for scope in scopes)


def has_group_grants(scopes: Iterable[str], grants: Grants) -> bool:
    """Return True if a grant of these scopes depends on groups of users."""
    return bool(grants) and any(scope in grants and grants[scope].groups for scope in scopes)


def _can_hold(principal: DjangoPrincipal, scope: str, grants: Grants, groups: frozenset[str]) -> bool:
    grant = grants[scope]
    if principal.is_local:
        return True
    if not grant.allows_user(principal.user, groups):
        return False
    if principal.scopes is ALL_SCOPES:
        return True  # the user acts without a client
    if principal.issuer == PROJECT_ISSUER and principal.client_id.startswith(PERSONAL_CLIENT_PREFIX):
        return grant.tokens
    return grant.allows_client(principal.client_id)


class ScopeFilter:
    """Scope filter for the verified principals of one server."""

    def __init__(
        self,
        *,
        hierarchy: ScopeHierarchy | None = None,
        authorize: Authorize | None = None,
        rule_cache: RuleCache = RULE_CACHE,
        run: Run = run_in_thread,
        run_outside_transaction: Run | None = None,
    ) -> None:
        """Create the filter of a server.

        `run` calls blocking functions. `run_outside_transaction` calls those that must read outside any transaction.
        """
        self._hierarchy = hierarchy or ScopeHierarchy()
        self._authorize = authorize
        self.takes_request = authorize is not None and accepts_keyword(authorize, "request")
        """True if the result depends on the request, and not only on the principal and the resource."""
        self._rule_cache = rule_cache
        self._run = run
        self._run_outside_transaction = run_outside_transaction or run

    async def filter_scopes(
        self, principal: DjangoPrincipal, *, resource: Any = None, request: Any = None
    ) -> DjangoPrincipal:
        """Return the principal with its effective scopes.

        `resource` is the protected resource it was verified for. Every request requires the `scopes` of that resource.
        An exception in the project's function is a bug, and refuses the principal.

        Raises:
            PrincipalRefused: the project or a grant refuses the principal.
            Overloaded: the rules cannot be read.
        """
        if principal.is_local:
            return principal
        principal = self.add_implied_scopes(principal)
        if self._authorize is not None:
            options = {"resource": resource, **({"request": request} if self.takes_request else {})}
            principal = await self._call_authorizer(self._authorize, principal, options)
        rules = await self._rule_cache.aget(self._run_outside_transaction)
        grants = rules.grants

        if not grants or principal.scopes is ALL_SCOPES:
            return principal
        required = () if resource is None else resource.scopes
        groups: frozenset[str] = frozenset()
        if has_group_grants((*principal.scopes, *required), grants):
            groups = await load_groups(principal, self._run)
        if is_scope_denied(principal, required, grants, groups):
            raise PrincipalRefused  # no step-up could provide a scope that every request requires

        remaining = frozenset(
            scope for scope in principal.scopes if scope not in grants or _can_hold(principal, scope, grants, groups)
        )
        return principal if remaining == principal.scopes else replace(principal, scopes=remaining)

    def add_implied_scopes(self, principal: DjangoPrincipal) -> DjangoPrincipal:
        """Return the principal with the scopes that its scopes include (`SCOPE_IMPLIES`)."""
        expanded = self._hierarchy.expand(principal.scopes)
        return principal if expanded is principal.scopes else replace(principal, scopes=expanded)

    async def _call_authorizer(
        self, authorize: Authorize, principal: DjangoPrincipal, options: Mapping[str, Any]
    ) -> DjangoPrincipal:
        try:
            if is_async(authorize):
                returned = await authorize(principal, **options)
            else:
                returned = await self._run(lambda: authorize(principal, **options))
                returned = await returned if inspect.isawaitable(returned) else returned
        except Exception:
            logger.exception("Authorizer failed; refusing %r", principal)
            raise PrincipalRefused from None

        if returned is None:
            raise PrincipalRefused
        if not isinstance(returned, DjangoPrincipal) or not _is_subset(returned, principal):
            logger.error(
                "Authorizer returned %r for %r, which is refused: it may only remove scopes",
                returned,
                principal,
            )
            raise PrincipalRefused

        return returned


def _is_subset(returned: DjangoPrincipal, original: DjangoPrincipal) -> bool:
    """Return True if `returned` is `original` with the same or fewer rights."""
    return (
        returned.key == original.key
        and returned.kind == original.kind
        and getattr(returned.user, "pk", None) == getattr(original.user, "pk", None)
        and (returned.user is None) == (original.user is None)
        and returned.audience == original.audience
        and (returned.token_id, returned.grant_id) == (original.token_id, original.grant_id)
        and (
            original.scopes is ALL_SCOPES or (returned.scopes is not ALL_SCOPES and returned.scopes <= original.scopes)
        )
        and (
            original.expires_at is None
            or (returned.expires_at is not None and returned.expires_at <= original.expires_at)
        )
    )


def allowed_scopes(user: Any, client_id: str | None = None, *, scopes: Iterable[str] | None = None) -> frozenset[str]:
    """Return those of `scopes` that this user may delegate to this client.

    Default: all scopes that `MCP["SCOPES"]` declares. Consent pages offer only these. Without a client: scopes that the
    user may delegate to at least one client. May query the database.

    Raises:
        Overloaded: the rules cannot be read.
    """
    wanted = frozenset(conf.get_settings().scopes if scopes is None else scopes)
    grants = RULE_CACHE.get().grants
    concerned = wanted & grants.keys()
    groups = get_group_names(user) if has_group_grants(concerned, grants) else frozenset()
    held = {
        scope
        for scope in concerned
        if grants[scope].allows_user(user, groups) and (client_id is None or grants[scope].allows_client(client_id))
    }
    return wanted - concerned | held
