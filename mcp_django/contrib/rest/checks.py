"""Can every view that was exposed be called? Registered when the first is."""

from collections.abc import Sequence
from typing import Any
from weakref import WeakSet

from django.core.checks import CheckMessage, Error, register
from django.core.exceptions import ImproperlyConfigured

from mcp_django.contrib.rest.plan_builder import routed
from mcp_django.contrib.rest.tools import Exposed

EXPOSED: "WeakSet[Exposed]" = WeakSet()
"""What `expose` was given."""


@register
def check_exposed_views(app_configs: Sequence[Any] | None, **kwargs: Any) -> list[CheckMessage]:
    """A view behaves as its route says, so there must be one route, and nothing around it that calls would not pass."""
    found: list[CheckMessage] = []
    for exposed in sorted(EXPOSED, key=repr):
        try:
            routed(exposed.subject, exposed.action, exposed.wishes)
        except Exception as problem:
            told = str(problem) if isinstance(problem, ImproperlyConfigured) else f"{exposed!r} fails: {problem!r}"
            hint = "Until then its tool answers every call with an internal error."
            found.append(Error(told, hint=hint, id="mcp_django.E020"))
    return found
