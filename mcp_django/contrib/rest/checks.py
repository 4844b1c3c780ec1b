"""System check of exposed views, registered with the first exposed view."""

from collections.abc import Sequence
from typing import Any
from weakref import WeakSet

from django.core.checks import CheckMessage, Error, register
from django.core.exceptions import ImproperlyConfigured

from mcp_django.contrib.rest.plan_builder import resolve_route
from mcp_django.contrib.rest.tools import ExposedAction

EXPOSED_ACTIONS: "WeakSet[ExposedAction]" = WeakSet()
"""Actions passed to `expose`."""


@register
def check_exposed_views(app_configs: Sequence[Any] | None, **kwargs: Any) -> list[CheckMessage]:
    """Check the routes of exposed views.

    Each view needs one route, and calls must not bypass decorators around it.
    """
    messages: list[CheckMessage] = []
    for exposed in sorted(EXPOSED_ACTIONS, key=repr):
        try:
            resolve_route(exposed.subject, exposed.action, exposed.options)
        except Exception as problem:
            text = str(problem) if isinstance(problem, ImproperlyConfigured) else f"{exposed!r} fails: {problem!r}"
            hint = "Until then its tool answers every call with an internal error."
            messages.append(Error(text, hint=hint, id="mcp_django.E020"))
    return messages
