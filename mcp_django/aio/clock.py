"""Monotonic clock for caches, expiry, back-off and poll intervals.

Tests replace `source`. Timers of asyncio use the loop's clock, which is the same: `time.monotonic`.
"""

import time
from collections.abc import Callable

source: Callable[[], float] = time.monotonic
"""Function that returns seconds since an arbitrary point, and never goes back."""


def monotonic() -> float:
    """Return the seconds since an arbitrary point; they never go back."""
    return source()
