"""Who may hold which scope, read from the rows of `ScopeGrant` once.

A scope with a grant is held by those whom it names and to whom it was delegated, both. A scope without one is held by
everybody to whom it was delegated.
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
class Grant:
    """Who may hold one scope."""

    groups: frozenset[str] = frozenset()
    """Users in one of these; empty for all users."""
    clients: tuple[str, ...] = ()
    """Clients with these identifiers, where * stands for anything; empty for all clients."""
    tokens: bool = True
    """May personal access tokens hold it?"""
    nobody: bool = False

    def lets_user(self, groups: frozenset[str]) -> bool:
        """May users hold it who are in these groups?"""
        return not self.nobody and (not self.groups or not self.groups.isdisjoint(groups))

    def lets_client(self, client_id: str) -> bool:
        """May this client hold it?"""
        return not self.nobody and (not self.clients or any(fnmatchcase(client_id, one) for one in self.clients))


Grants = Mapping[str, Grant]
"""By scope."""
NO_GRANTS: Grants = MappingProxyType({})


def grants_of(rows: Iterable[ScopeGrant]) -> Grants:
    """What the rows say. A row that says nothing that can be understood grants its scope to nobody."""
    return MappingProxyType({row.scope: _grant(row) for row in rows})


def _grant(row: Any) -> Grant:
    try:
        check_names(row.groups)
        check_names(row.clients)
    except ValidationError:
        logger.error("The grant of the scope %r cannot be understood, so nobody holds the scope", row.scope)
        return Grant(nobody=True)
    return Grant(groups=frozenset(row.groups), clients=tuple(row.clients), tokens=bool(row.tokens))
