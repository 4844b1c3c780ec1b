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
class ToolRequirements:
    """Requirements of policies, in addition to those in code."""

    disabled: bool = False
    """True if the tool is hidden from all callers."""
    scopes: frozenset[str] = frozenset()
    groups: tuple[frozenset[str], ...] = ()
    """Sets of groups; the caller must be in at least one group of each set."""
    rates: tuple[Rate, ...] = ()
    """Rates that apply to each caller separately."""

    def allows_groups(self, groups: frozenset[str]) -> bool:
        """Return True if a user in these groups satisfies `groups`."""
        return all(not among.isdisjoint(groups) for among in self.groups)


NO_REQUIREMENTS: Final = ToolRequirements()
"""Requirements of a tool that matches no policy."""


@dataclass(frozen=True, slots=True)
class ToolPolicies:
    """All policies, in no particular order.

    The requirements of every matching policy apply.
    """

    rows: tuple[tuple[str, str, ToolRequirements], ...] = ()
    """Server (empty for all), pattern of tool names, and requirements."""

    @classmethod
    def from_rows(cls, rows: Iterable[ToolPolicy]) -> "ToolPolicies":
        """Compile the rows. An invalid row disables its tools."""
        return cls(tuple((row.server, row.tool, _build_requirements(row)) for row in rows))

    def get_requirements(self, server: str, name: str) -> ToolRequirements:
        """Return the requirements for a tool of a server.

        `NO_REQUIREMENTS` if no policy matches.
        """
        matching = [
            requirements
            for alias, pattern, requirements in self.rows
            if alias in ("", server) and fnmatchcase(name, pattern)
        ]
        return merge_requirements(matching) if matching else NO_REQUIREMENTS


NO_POLICIES: Final = ToolPolicies()


def _build_requirements(row: Any) -> ToolRequirements:
    try:
        check_scopes(row.scopes)
        check_names(row.groups)
        return ToolRequirements(
            disabled=bool(row.disabled),
            scopes=frozenset(row.scopes),
            groups=(frozenset(row.groups),) if row.groups else (),
            rates=(Rate.parse(row.rate),) if row.rate else (),
        )
    except (ValidationError, ValueError):
        logger.error("Invalid tool policy %r; its tools are disabled", row.pk)
        return ToolRequirements(disabled=True)


def merge_requirements(requirements: Sequence[ToolRequirements]) -> ToolRequirements:
    """Merge several requirements into one that satisfies all of them."""
    if len(requirements) == 1:
        return requirements[0]
    return ToolRequirements(
        disabled=any(one.disabled for one in requirements),
        scopes=frozenset().union(*(one.scopes for one in requirements)),
        groups=tuple(among for one in requirements for among in one.groups),
        rates=tuple(dict.fromkeys(rate for one in requirements for rate in one.rates)),
    )
