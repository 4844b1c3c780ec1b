"""Links of other apps on the pages of a target and of a recorded call.

An app adds a function in `AppConfig.ready`.
"""

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from django.contrib.admin import AdminSite
from django.http import HttpRequest

from mcp_django.contrib.control_room.models import CallLogEntry


class AddedLink(NamedTuple):
    """Link of another app."""

    url: str
    label: Any
    name: str = ""
    """Identifier of a button in the HTML, unique among the links; empty for a link in a list."""


class LinkSubject(NamedTuple):
    """Target whose page shows the links, or the recorded call."""

    server: str
    method: str
    name: str
    entry: CallLogEntry | None = None
    """Recorded call; None for a target."""
    username: str = ""
    """Name of the caller of a recorded call; empty if it is unknown."""


BuildLinks = Callable[[HttpRequest, AdminSite, LinkSubject], Iterable[AddedLink]]
"""Function that yields the links which the user of a request may follow."""
_BUILDERS: list[BuildLinks] = []


def add_links(build: BuildLinks) -> None:
    """Add links to the pages of targets and recorded calls."""
    if build not in _BUILDERS:
        _BUILDERS.append(build)


def build_links(request: HttpRequest, site: AdminSite, subject: LinkSubject) -> list[AddedLink]:
    """Return the links of all apps."""
    return [link for build in _BUILDERS for link in build(request, site, subject)]
