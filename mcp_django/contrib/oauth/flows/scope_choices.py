"""What a user can be asked to allow: the scopes of a request that this user could give this client."""

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
    """One tick box."""

    scope: str
    description: str
    includes: tuple[str, ...] = ()
    """The descriptions of what is allowed with it, in however many steps."""
    ticked: bool = True


def offers(scopes: Iterable[str], *, ticked: Collection[str] | None = None) -> list[Offer]:
    """What is shown of `scopes`, in their order. `ticked` are those that are; None: all."""
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
    """What a scope lets a client do, in the words of `MCP["SCOPES"]`; the scope itself where nobody said it."""
    return declared().get(scope, scope)


def grantable(user: Any, application: Any, scopes: Sequence[str]) -> list[str]:
    """Those of `scopes` that `user` may give `application`, in their order."""
    may = offered(application, user=user)
    return [scope for scope in scopes if scope in may]


def personal_scopes(user: Any) -> list[str]:
    """The scopes that `user` may give a personal token: the declared ones, less those that are kept for others."""
    names = list(conf.get_settings().scopes)
    grants = grants_of(ScopeGrant.objects.filter(scope__in=names))
    groups = groups_of(user)
    refused = {scope for scope, grant in grants.items() if not grant.tokens or not grant.lets_user(groups)}
    return [scope for scope in names if scope not in refused]
