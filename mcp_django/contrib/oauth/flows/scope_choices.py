"""Scopes of a request that a user may grant to a client, as choices of the consent page."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from mcp_django import conf
from mcp_django.auth.authorization.scope_grants import build_grants
from mcp_django.auth.authorization.scopes import ScopeHierarchy
from mcp_django.auth.principal import get_group_names
from mcp_django.contrib.oauth.tokens.scopes import get_declared_scopes, get_offered_scopes
from mcp_django.models import ScopeGrant


@dataclass(frozen=True, slots=True, kw_only=True)
class ScopeChoice:
    """Tick box of one scope."""

    scope: str
    description: str
    includes: tuple[str, ...] = ()
    """Descriptions of all directly or indirectly implied scopes."""
    ticked: bool = True


def build_scope_choices(scopes: Iterable[str], *, ticked: Collection[str] | None = None) -> list[ScopeChoice]:
    """Return the choices for `scopes` in their order.

    `ticked` holds the ticked scopes; None means all.
    """
    descriptions = get_declared_scopes()
    hierarchy = ScopeHierarchy(conf.get_settings().scope_implies)
    return [
        ScopeChoice(
            scope=scope,
            description=descriptions.get(scope, scope),
            includes=tuple(
                descriptions.get(one, one) for one in sorted(hierarchy.expand(frozenset({scope})) - {scope})
            ),
            ticked=ticked is None or scope in ticked,
        )
        for scope in scopes
    ]


def get_scope_description(scope: str) -> str:
    """Return the description in `MCP["SCOPES"]`, or the scope itself without one."""
    return get_declared_scopes().get(scope, scope)


def filter_grantable(user: Any, application: Any, scopes: Sequence[str]) -> list[str]:
    """Return those of `scopes` that `user` may grant to `application`, in their order."""
    offered_scopes = get_offered_scopes(application, user=user)
    return [scope for scope in scopes if scope in offered_scopes]


def get_personal_scopes(user: Any) -> list[str]:
    """Return the scopes that `user` may give a personal token.

    These are the declared ones, except those reserved for other users or kinds of tokens.
    """
    names = list(conf.get_settings().scopes)
    grants = build_grants(ScopeGrant.objects.filter(scope__in=names))
    groups = get_group_names(user)
    refused = {scope for scope, grant in grants.items() if not grant.tokens or not grant.allows_user(groups)}
    return [scope for scope in names if scope not in refused]
