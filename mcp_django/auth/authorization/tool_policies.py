"""What the policies of tools ask for, read from their rows once."""

import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any, Final

from django.core.exceptions import ValidationError

from mcp_django.models import ToolPolicy
from mcp_django.models.rules import check_names
from mcp_django.models.token import check_scopes
from mcp_django.server.rates import Rate

logger = logging.getLogger("mcp_django.auth")


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What policies ask for besides what code asks for."""

    disabled: bool = False
    """Is there no such tool?"""
    scopes: frozenset[str] = frozenset()
    groups: tuple[frozenset[str], ...] = ()
    """The caller is in one of each."""
    rates: tuple[Rate, ...] = ()
    """Each caller keeps to each."""

    def lets_in(self, groups: frozenset[str]) -> bool:
        """Is somebody in these groups let through to it?"""
        return all(not among.isdisjoint(groups) for among in self.groups)


NOTHING: Final = Asked()
"""What is asked where no policy fits."""


@dataclass(frozen=True, slots=True)
class Policies:
    """All policies, in no order: what every one that fits asks for holds."""

    rows: tuple[tuple[str, str, Asked], ...] = ()
    """The server, "" for all, the pattern, and what is asked."""

    @classmethod
    def of(cls, rows: Iterable[ToolPolicy]) -> "Policies":
        """What the rows say. A row that says nothing that can be understood disables its tools."""
        return cls(tuple((row.server, row.tool, _asked(row)) for row in rows))

    def of_tool(self, server: str, name: str) -> Asked:
        """What is asked for a tool of a server; NOTHING where no policy fits."""
        found = [asked for alias, pattern, asked in self.rows if alias in ("", server) and fnmatchcase(name, pattern)]
        return together(found) if found else NOTHING


NO_POLICIES: Final = Policies()


def _asked(row: Any) -> Asked:
    try:
        check_scopes(row.scopes)
        check_names(row.groups)
        return Asked(
            disabled=bool(row.disabled),
            scopes=frozenset(row.scopes),
            groups=(frozenset(row.groups),) if row.groups else (),
            rates=(Rate.parse(row.rate),) if row.rate else (),
        )
    except (ValidationError, ValueError):
        logger.error("The tool policy %r cannot be understood, so its tools are disabled", row.pk)
        return Asked(disabled=True)


def together(found: Sequence[Asked]) -> Asked:
    """What all of them ask for."""
    if len(found) == 1:
        return found[0]
    return Asked(
        disabled=any(one.disabled for one in found),
        scopes=frozenset().union(*(one.scopes for one in found)),
        groups=tuple(among for one in found for among in one.groups),
        rates=tuple(dict.fromkeys(rate for one in found for rate in one.rates)),
    )
