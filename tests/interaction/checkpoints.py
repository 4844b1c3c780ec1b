"""Gates that tests open for handlers, and counts of the steps of handlers.

Handlers wait at gates instead of sleeping, so that a test decides when they go on.
"""

import asyncio
from collections import Counter


class Checkpoints:
    """Reset before every test."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self._gates: dict[str, asyncio.Event] = {}
        self._changed = asyncio.Event()

    def reset(self) -> None:
        self.__init__()  # type: ignore[misc]

    def note(self, what: str) -> int:
        """Count that something happened; how often it has by now."""
        self.counts[what] += 1
        self._changed.set()
        return self.counts[what]

    async def until(self, what: str, times: int = 1) -> None:
        """Wait until something has happened so often."""
        while self.counts[what] < times:
            self._changed.clear()
            await self._changed.wait()

    def gate(self, name: str) -> asyncio.Event:
        """A gate that is closed at first."""
        return self._gates.setdefault(name, asyncio.Event())

    async def wait_at(self, name: str) -> None:
        """Arrive at a gate and wait until it opens; note whether the wait ended with a cancellation."""
        self.note(f"{name} reached")
        try:
            await self.gate(name).wait()
        except asyncio.CancelledError:
            self.note(f"{name} cancelled")
            raise
        self.note(f"{name} passed")


CHECKPOINTS = Checkpoints()
