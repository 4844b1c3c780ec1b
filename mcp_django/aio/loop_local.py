"""Values that belong to one event loop each, such as a thread pool or a registry of streams."""

import asyncio
import weakref
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")
Loop = asyncio.AbstractEventLoop


def find_running_loop() -> Loop | None:
    """Return the loop that runs in this thread; None if it has none."""
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


class LoopLocal(Generic[T]):
    """A value for each event loop, created at its first use on that loop.

    It ends with its loop, to which it must not refer strongly. All methods are thread-safe. No lock is needed, because
    code on a loop creates its value, so that signal handlers and forked processes may call them.
    """

    __slots__ = ("_create", "_values")

    def __init__(self, create: Callable[[], T]) -> None:
        """Create an empty collection; `create` returns the value of a loop."""
        self._create = create
        self._values: weakref.WeakKeyDictionary[Loop, T] = weakref.WeakKeyDictionary()

    def __len__(self) -> int:
        return len(self._values)

    def get(self, loop: Loop | None = None) -> T:
        """Return the value of a loop, by default the running one. Create it if needed."""
        if loop is None:
            loop = asyncio.get_running_loop()
        try:
            return self._values[loop]
        except KeyError:
            value = self._values[loop] = self._create()
            return value

    def find(self, loop: Loop | None = None) -> T | None:
        """Return the value of a loop, by default the running one; None if it has none."""
        return self._values.get(asyncio.get_running_loop() if loop is None else loop)

    def pop(self, loop: Loop | None = None) -> T | None:
        """Remove and return the value of a loop, by default the running one."""
        return self._values.pop(asyncio.get_running_loop() if loop is None else loop, None)

    def discard(self, value: T, loop: Loop | None = None) -> None:
        """Remove `value` if it is still the value of a loop, by default the running one."""
        if loop is None:
            loop = asyncio.get_running_loop()
        if self._values.get(loop) is value:
            del self._values[loop]

    def items(self) -> list[tuple[Loop, T]]:
        """Return the loops with their values at this moment."""
        items = []
        for reference in self._values.keyrefs():  # a copy: other threads may change the entries in the meantime
            loop = reference()
            value = None if loop is None else self._values.get(loop)
            if loop is not None and value is not None:
                items.append((loop, value))
        return items
