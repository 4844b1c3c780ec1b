"""Scope grants: the users and clients that may hold a scope.

They are compiled from `ScopeGrant` rows. A scope with a grant is held only by the users and clients that the grant
names, and only if it was delegated to them. A scope without one is held by every client that it was delegated to.
"""

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from types import MappingProxyType
from typing import Any

from django.core.exceptions import ValidationError

from mcp_django.models import ScopeGrant
from mcp_django.models.rules import check_names

logger = logging.getLogger("mcp_django.auth")


@dataclass(frozen=True, slots=True, kw_only=True)
class ScopeGrantRule:
    """The holders of one scope."""

    groups: frozenset[str] = frozenset()
    """Groups whose users may hold it; empty for all users."""
    clients: tuple[str, ...] = ()
    """Patterns of client identifiers, where * matches anything; empty for all clients."""
    tokens: bool = True
    """True if personal access tokens may hold it."""
    denies_all: bool = False

    def allows_user(self, groups: frozenset[str]) -> bool:
        """Return True if users in these groups may hold it."""
        return not self.denies_all and (not self.groups or not self.groups.isdisjoint(groups))

    def allows_client(self, client_id: str) -> bool:
        """Return True if this client may hold it."""
        return not self.denies_all and (not self.clients or any(fnmatchcase(client_id, one) for one in self.clients))


Grants = Mapping[str, ScopeGrantRule]
"""Grants by scope."""
NO_GRANTS: Grants = MappingProxyType({})


def build_grants(rows: Iterable[ScopeGrant]) -> Grants:
    """Compile grants by scope. An invalid row denies its scope to all callers."""
    return MappingProxyType({row.scope: _build_grant(row) for row in rows})


def _build_grant(row: Any) -> ScopeGrantRule:
    try:
        check_names(row.groups)
        check_names(row.clients)
    except ValidationError:
        logger.error("Invalid grant of the scope %r; the scope is denied to all callers", row.scope)
        return ScopeGrantRule(denies_all=True)
    return ScopeGrantRule(groups=frozenset(row.groups), clients=tuple(row.clients), tokens=bool(row.tokens))
