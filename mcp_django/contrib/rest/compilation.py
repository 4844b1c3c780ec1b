"""Compilation of the plans of a registry's exposed actions.

A plan needs serializers, which are slow: some hundred views take seconds. The plans share the descriptions of
serializers, so that each serializer is described once. A list compiles all missing plans on one thread.
"""

import threading
from typing import Protocol
from weakref import WeakKeyDictionary, WeakSet

from mcp_django.contrib.rest.openapi import SharedComponents
from mcp_django.extensions.primitives import Registry


class PlannedAction(Protocol):
    """Exposed action, whose plan is compiled."""

    def find_compiled_plan(self, components: SharedComponents | None = None) -> object:
        """Compile the plan unless that is done, or log the problem."""


class PlanCompilation:
    """Compilation of the exposed actions of one registry."""

    def __init__(self) -> None:
        self._pending: WeakSet[PlannedAction] = WeakSet()
        self._components = SharedComponents()
        self._lock = threading.Lock()

    def add(self, action: PlannedAction) -> None:
        """Add an exposed action."""
        self._pending.add(action)

    def compile(self, action: PlannedAction) -> None:
        """Compile a plan with the shared descriptions, which end with the last pending action."""
        with self._lock:
            action.find_compiled_plan(self._components)
            self._pending.discard(action)
            if not self._pending:
                self._components = SharedComponents()

    def compile_all(self) -> None:
        """Compile all pending plans."""
        for action in sorted(self._pending, key=repr):
            self.compile(action)


_COMPILATIONS: WeakKeyDictionary[Registry, PlanCompilation] = WeakKeyDictionary()


def get_compilation(registry: Registry) -> PlanCompilation:
    """Return the compilation of a registry."""
    return _COMPILATIONS.setdefault(registry, PlanCompilation())
