"""System check of exposed views, registered with the first exposed view."""

from collections.abc import Sequence
from typing import Any
from weakref import WeakSet

from django.core.checks import CheckMessage, Error, register
from django.core.exceptions import ImproperlyConfigured

from mcp_django.contrib.rest.plan_builder import routed
from mcp_django.contrib.rest.tools import Exposed

EXPOSED: "WeakSet[Exposed]" = WeakSet()
"""Actions passed to `expose`."""


@register
def check_exposed_views(app_configs: Sequence[Any] | None, **kwargs: Any) -> list[CheckMessage]:
    """Check the routes of exposed views.

    Each view needs one route, and calls must not bypass decorators around it.
    """
    found: list[CheckMessage] = []
    for exposed in sorted(EXPOSED, key=repr):
        try:
            routed(exposed.subject, exposed.action, exposed.wishes)
        except Exception as problem:
            told = str(problem) if isinstance(problem, ImproperlyConfigured) else f"{exposed!r} fails: {problem!r}"
            hint = "Until then its tool answers every call with an internal error."
            found.append(Error(told, hint=hint, id="mcp_django.E020"))
    return found
