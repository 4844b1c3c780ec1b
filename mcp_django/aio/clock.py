"""The clock of this process, from which caches, expiry, back-off and poll intervals take the time.

Tests replace `source`. Timers of asyncio follow the loop's own clock, which is the same one: `time.monotonic`.
"""

import time
from collections.abc import Callable

source: Callable[[], float] = time.monotonic
"""Gives seconds since an arbitrary point, and never goes back."""


def monotonic() -> float:
    """Read the clock: seconds since an arbitrary point, which never go back."""
    return source()
