"""Requirements of tool policies, compiled from their rows."""

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
    """Requirements of policies, in addition to those in code."""

    disabled: bool = False
    """True if the tool is hidden from all callers."""
    scopes: frozenset[str] = frozenset()
    groups: tuple[frozenset[str], ...] = ()
    """Sets of groups; the caller must be in at least one group of each set."""
    rates: tuple[Rate, ...] = ()
    """Rates that apply to each caller separately."""

    def lets_in(self, groups: frozenset[str]) -> bool:
        """Return True if a user in these groups satisfies `groups`."""
        return all(not among.isdisjoint(groups) for among in self.groups)


NOTHING: Final = Asked()
"""Requirements of a tool that matches no policy."""


@dataclass(frozen=True, slots=True)
class Policies:
    """All policies, in no particular order.

    The requirements of every matching policy apply.
    """

    rows: tuple[tuple[str, str, Asked], ...] = ()
    """Server (empty for all), pattern of tool names, and requirements."""

    @classmethod
    def of(cls, rows: Iterable[ToolPolicy]) -> "Policies":
        """Compile the rows. An invalid row disables its tools."""
        return cls(tuple((row.server, row.tool, _asked(row)) for row in rows))

    def of_tool(self, server: str, name: str) -> Asked:
        """Return the requirements for a tool of a server.

        `NO_REQUIREMENTS` if no policy matches.
        """
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
        logger.error("Invalid tool policy %r; its tools are disabled", row.pk)
        return Asked(disabled=True)


def together(found: Sequence[Asked]) -> Asked:
    """Merge several requirements into one that satisfies all of them."""
    if len(found) == 1:
        return found[0]
    return Asked(
        disabled=any(one.disabled for one in found),
        scopes=frozenset().union(*(one.scopes for one in found)),
        groups=tuple(among for one in found for among in one.groups),
        rates=tuple(dict.fromkeys(rate for one in found for rate in one.rates)),
    )
