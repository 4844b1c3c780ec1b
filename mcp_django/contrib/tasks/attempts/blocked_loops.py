"""Event loops that a tool blocks: a warning names the place in the code.

While a loop is blocked, it serves no other tool and no client.
"""

import asyncio
import os
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import FrameType

from mcp_django.extensions.calls import get_logger
from mcp_django.extensions.event_loop import call_threadsafe, monotonic

logger = get_logger("mcp_django.tasks")
MIN_BLOCKED_SECONDS = 2.0
"""Seconds without an answer of a loop after which it counts as blocked."""
WARNING_INTERVAL_SECONDS = 60.0
"""Minimum seconds between two warnings."""
PACKAGE_PATH = str(Path(__file__).resolve().parents[3]) + os.sep
"""Start of the paths of the package's files, which call the functions of tools."""


class _Probe:
    """A function that was sent to a loop, with the thread of the loop once it has run."""

    def __init__(self) -> None:
        self.sent = monotonic()
        self.thread_id: int | None = None

    def answer(self) -> None:
        self.thread_id = threading.get_ident()


class BlockedLoops:
    """Watch over event loops, for a thread that calls `check` at intervals."""

    def __init__(self) -> None:
        self._probes: dict[asyncio.AbstractEventLoop, _Probe] = {}
        self._threads: dict[asyncio.AbstractEventLoop, int] = {}
        self._next_warning = 0.0

    def check(self, tools: Mapping[asyncio.AbstractEventLoop, Sequence[str]]) -> None:
        """Warn if a loop has not run for a while. `tools` names the tools that run on each loop."""
        for loop in self._probes.keys() - tools.keys():
            del self._probes[loop]
            self._threads.pop(loop, None)
        for loop, names in tools.items():
            probe = self._probes.get(loop)
            if probe is not None and probe.thread_id is None:
                self._warn(loop, monotonic() - probe.sent, names)
                continue
            if probe is not None and probe.thread_id is not None:
                self._threads[loop] = probe.thread_id
            probe = self._probes[loop] = _Probe()
            call_threadsafe(loop, probe.answer)

    def _warn(self, loop: asyncio.AbstractEventLoop, seconds: float, names: Sequence[str]) -> None:
        if seconds < MIN_BLOCKED_SECONDS or monotonic() < self._next_warning:
            return
        self._next_warning = monotonic() + WARNING_INTERVAL_SECONDS
        # The thread of a loop that was blocked from the first check on is not known yet. asyncio's own loop knows it.
        thread_id = self._threads.get(loop) or getattr(loop, "_thread_id", None) or 0
        frame = sys._current_frames().get(thread_id)
        logger.warning(
            "The event loop of tasks has been blocked for %.1f seconds at %s; running tools: %s. Declare a tool that "
            "blocks with def instead of async def",
            seconds,
            _describe_place(frame),
            ", ".join(sorted(set(names))),
        )


def _describe_place(frame: FrameType | None) -> str:
    """Return the line of the function that the package has called, as `file:line (function)`."""
    if frame is None:
        return "an unknown place"
    while (outer := frame.f_back) is not None and not outer.f_code.co_filename.startswith(PACKAGE_PATH):
        frame = outer
    return f"{frame.f_code.co_filename}:{frame.f_lineno} ({frame.f_code.co_qualname})"
