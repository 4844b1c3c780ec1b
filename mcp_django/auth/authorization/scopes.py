"""Effective scopes of a verified principal: delegated and implied ones, filtered.

Three steps apply, in this order:

1. `SCOPE_IMPLIES` adds included scopes.
2. The server's `AUTHORIZER`, a function of the project, may remove scopes.
3. A scope with a grant (`ScopeGrant`) is kept only for the holders that the grant names.
"""

import inspect
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any, Final

from mcp_django import conf
from mcp_django.auth.authorization.rule_cache import RULEBOOK, Rulebook, Run, in_thread
from mcp_django.auth.authorization.scope_grants import Grants
from mcp_django.auth.principal import EVERY_SCOPE, ISSUER, Principal, groups_of
from mcp_django.server.calls.callables import is_async

logger = logging.getLogger("mcp_django.auth")

Authorize = Callable[..., Any]
"""`authorize(principal, resource=…)`, sync or async.

Return the principal, optionally with fewer scopes, or None to refuse it.
"""
Narrow = Callable[..., Awaitable[Principal]]
"""Type of `ScopeFilter.filter_scopes`, for dependency injection."""
PERSONAL: Final = "token:"
"""Prefix of the client identifiers of personal access tokens.

Each token is a separate client.
"""


class Refused(Exception):
    """Refusal of a principal by the project's authorizer or a grant."""


class Hierarchy:
    """Scopes and the scopes that they include, resolved once.

    See basic/authorization, scope hierarchies.
    """

    def __init__(self, implies: Mapping[str, Iterable[str]] = MappingProxyType({})) -> None:
        self._closed = {scope: _reached(scope, implies) for scope in implies}

    def expand(self, scopes: frozenset[str]) -> frozenset[str]:
        """Return the scopes and all scopes that they include, directly or indirectly."""
        if scopes is EVERY_SCOPE or not self._closed or self._closed.keys().isdisjoint(scopes):
            return scopes
        return scopes.union(*(self._closed[scope] for scope in scopes if scope in self._closed))


def _reached(scope: str, implies: Mapping[str, Iterable[str]]) -> frozenset[str]:
    found: set[str] = set()
    waiting = [scope]
    while waiting:
        one = waiting.pop()
        if one not in found:
            found.add(one)
            waiting.extend(implies.get(one, ()))
    return frozenset(found)


def withheld(principal: Principal, scopes: Iterable[str], grants: Grants, groups: frozenset[str]) -> bool:
    """Return True if the principal must not hold one of `scopes`.

    Delegation does not matter. `groups` are the groups of its user.
    """
    return bool(grants) and any(scope in grants and not _may_hold(principal, scope, grants, groups) for scope in scopes)


def asks_for_groups(scopes: Iterable[str], grants: Grants) -> bool:
    """Return True if a grant of these scopes depends on groups of users."""
    return bool(grants) and any(scope in grants and grants[scope].groups for scope in scopes)


def _may_hold(principal: Principal, scope: str, grants: Grants, groups: frozenset[str]) -> bool:
    grant = grants[scope]
    if principal.is_local:
        return True
    if not grant.lets_user(groups):
        return False
    if principal.scopes is EVERY_SCOPE:
        return True  # the user acts without a client
    if principal.issuer == ISSUER and principal.client_id.startswith(PERSONAL):
        return grant.tokens
    return grant.lets_client(principal.client_id)


class Narrowing:
    """Scope filter for the verified principals of one server."""

    def __init__(
        self,
        *,
        hierarchy: Hierarchy | None = None,
        authorize: Authorize | None = None,
        rulebook: Rulebook = RULEBOOK,
        run: Run = in_thread,
        run_apart: Run | None = None,
    ) -> None:
        """Create the filter of a server.

        `run` calls blocking functions. `run_outside_transaction` calls those that must read outside any transaction.
        """
        self._hierarchy, self._authorize = hierarchy or Hierarchy(), authorize
        self._rulebook, self._run, self._run_apart = rulebook, run, run_apart or run

    async def narrow(self, principal: Principal, *, resource: Any = None) -> Principal:
        """Return the principal with its effective scopes.

        `resource` is the protected resource it was verified for. Every request requires the `scopes` of that resource.
        An exception in the project's function is a bug, and refuses the principal.

        Raises:
            PrincipalRefused: the project or a grant refuses the principal.
            Overloaded: the rules cannot be read.
        """
        if principal.is_local:
            return principal
        expanded = self._hierarchy.expand(principal.scopes)
        if expanded is not principal.scopes:
            principal = replace(principal, scopes=expanded)

        if self._authorize is not None:
            principal = await self._asked(self._authorize, principal, resource)
        rules = await self._rulebook.current(self._run_apart)
        grants = rules.grants

        if not grants or principal.scopes is EVERY_SCOPE:
            return principal
        required = () if resource is None else resource.scopes
        groups: frozenset[str] = frozenset()
        if asks_for_groups((*principal.scopes, *required), grants):
            known = principal.known_groups()
            groups = await self._run(principal.groups) if known is None else known
        if withheld(principal, required, grants, groups):
            raise Refused  # no step-up could provide a scope that every request requires

        left = frozenset(
            scope for scope in principal.scopes if scope not in grants or _may_hold(principal, scope, grants, groups)
        )
        return principal if left == principal.scopes else replace(principal, scopes=left)

    async def _asked(self, authorize: Authorize, principal: Principal, resource: Any) -> Principal:
        try:
            if is_async(authorize):
                found = await authorize(principal, resource=resource)
            else:
                found = await self._run(lambda: authorize(principal, resource=resource))
                found = await found if inspect.isawaitable(found) else found
        except Exception:
            logger.exception("Authorizer failed; refusing %r", principal)
            raise Refused from None

        if found is None:
            raise Refused
        if not isinstance(found, Principal) or not _is_within(found, principal):
            logger.error(
                "Authorizer returned %r for %r, which is refused: it may only remove scopes",
                found,
                principal,
            )
            raise Refused

        return found


def _is_within(found: Principal, given: Principal) -> bool:
    """Return True if `returned` is `original` with the same or fewer rights."""
    return (
        found.key == given.key
        and found.kind == given.kind
        and getattr(found.user, "pk", None) == getattr(given.user, "pk", None)
        and (found.user is None) == (given.user is None)
        and found.audience == given.audience
        and found.token_id == given.token_id
        and (given.scopes is EVERY_SCOPE or (found.scopes is not EVERY_SCOPE and found.scopes <= given.scopes))
        and (given.expires_at is None or (found.expires_at is not None and found.expires_at <= given.expires_at))
    )


def allowed_scopes(user: Any, client_id: str | None = None, *, scopes: Iterable[str] | None = None) -> frozenset[str]:
    """Return those of `scopes` that this user may delegate to this client.

    Default: all scopes that `MCP["SCOPES"]` declares. Consent pages offer only these. Without a client: scopes that the
    user may delegate to at least one client. May query the database.

    Raises:
        Overloaded: the rules cannot be read.
    """
    wanted = frozenset(conf.get_settings().scopes if scopes is None else scopes)
    grants = RULEBOOK.known().grants
    concerned = wanted & grants.keys()
    groups = groups_of(user) if asks_for_groups(concerned, grants) else frozenset()
    refused = {
        scope
        for scope in concerned
        if not grants[scope].lets_user(groups) or not (client_id is None or grants[scope].lets_client(client_id))
    }
    return wanted - refused
