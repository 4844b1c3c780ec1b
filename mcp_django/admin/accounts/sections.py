"""Parts of the page of a service account, which optional apps extend.

An app adds a function that builds a section for an account, and the one that counts calls for the list.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple

from django.http import HttpRequest


class SectionCell(NamedTuple):
    """Cell of a table, perhaps with a link."""

    text: Any
    url: str = ""
    css_class: str = ""


class SectionLink(NamedTuple):
    """Link below a table."""

    text: Any
    url: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AccountSection:
    """Table about an account, with a note and links."""

    name: str
    """Identifier in the HTML."""
    title: Any
    columns: Sequence[Any] = ()
    rows: Sequence[Sequence[SectionCell]] = ()
    note: Any = ""
    """Text above the table, or instead of an empty one."""
    links: Sequence[SectionLink] = ()


BuildSection = Callable[[HttpRequest, Any], AccountSection | None]
"""Function of a request and a user. It returns None if the reader of the page may not see the section."""
CountCalls = Callable[[Iterable[str], datetime], Mapping[str, int]]
"""Function of primary keys of users as texts, and a time. It returns the calls since then."""

_BUILDERS: list[BuildSection] = []
_COUNTERS: list[CountCalls] = []


def add_account_section(build: BuildSection) -> None:
    """Add a section to the page of each account."""
    if build not in _BUILDERS:
        _BUILDERS.append(build)


def build_added_sections(request: HttpRequest, user: Any) -> list[AccountSection]:
    """Return the sections of optional apps."""
    found = [build(request, user) for build in _BUILDERS]
    return [section for section in found if section is not None]


def set_call_counter(count: CountCalls) -> None:
    """Set the function that counts calls of users."""
    _COUNTERS[:] = [count]


def count_calls(users: Iterable[str], since: datetime) -> Mapping[str, int] | None:
    """Return the calls of users since a time; None if no app counts calls."""
    return _COUNTERS[0](users, since) if _COUNTERS else None
