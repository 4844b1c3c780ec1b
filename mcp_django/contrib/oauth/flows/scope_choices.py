"""Scopes of a request that a user may grant to a client, as choices of the consent page."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from mcp_django import conf
from mcp_django.auth.authorization.scope_grants import grants_of
from mcp_django.auth.authorization.scopes import Hierarchy
from mcp_django.auth.principal import groups_of
from mcp_django.contrib.oauth.tokens.scopes import declared, offered
from mcp_django.models import ScopeGrant


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """Tick box of one scope."""

    scope: str
    description: str
    includes: tuple[str, ...] = ()
    """Descriptions of all directly or indirectly implied scopes."""
    ticked: bool = True


def offers(scopes: Iterable[str], *, ticked: Collection[str] | None = None) -> list[Offer]:
    """Return the choices for `scopes` in their order.

    `ticked` holds the ticked scopes; None means all.
    """
    said = declared()
    hierarchy = Hierarchy(conf.get_settings().scope_implies)
    return [
        Offer(
            scope=scope,
            description=said.get(scope, scope),
            includes=tuple(said.get(one, one) for one in sorted(hierarchy.expand(frozenset({scope})) - {scope})),
            ticked=ticked is None or scope in ticked,
        )
        for scope in scopes
    ]


def describe(scope: str) -> str:
    """Return the description in `MCP["SCOPES"]`, or the scope itself without one."""
    return declared().get(scope, scope)


def grantable(user: Any, application: Any, scopes: Sequence[str]) -> list[str]:
    """Return those of `scopes` that `user` may grant to `application`, in their order."""
    may = offered(application, user=user)
    return [scope for scope in scopes if scope in may]


def personal_scopes(user: Any) -> list[str]:
    """Return the scopes that `user` may give a personal token.

    These are the declared ones, except those reserved for other users or kinds of tokens.
    """
    names = list(conf.get_settings().scopes)
    grants = grants_of(ScopeGrant.objects.filter(scope__in=names))
    groups = groups_of(user)
    refused = {scope for scope, grant in grants.items() if not grant.tokens or not grant.lets_user(groups)}
    return [scope for scope in names if scope not in refused]
