"""Links of optional apps on the overview of the app in the admin.

An optional app adds a function that returns its link for a user, or None if the page is not for the user.
"""

from collections.abc import Callable
from typing import NamedTuple

from django import template
from django.http import HttpRequest
from django.template import Context

register = template.Library()


class OverviewLink(NamedTuple):
    """Page of an optional app."""

    url: str
    title: str
    description: str
    """A sentence about the page."""


FindLink = Callable[[HttpRequest], OverviewLink | None]
_FINDERS: list[FindLink] = []


def add_overview_link(find: FindLink) -> None:
    """Add a link. `find` returns it for the user of a request, or None."""
    if find not in _FINDERS:
        _FINDERS.append(find)


@register.simple_tag(takes_context=True)
def list_overview_links(context: Context) -> list[OverviewLink]:
    """Return the links for the user: `{% list_overview_links as links %}`."""
    request: HttpRequest = context["request"]
    found = [find(request) for find in _FINDERS]
    return [link for link in found if link is not None]
