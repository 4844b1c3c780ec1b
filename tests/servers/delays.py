"""Delays that may fall into a pause of a busy machine: taken some times, printed, and told by their median."""

import statistics
from collections.abc import Callable

TIMES = 3


def median(what: str, once: Callable[[int], float]) -> float:
    """The median of the delays, in seconds; `once` is told how often it was called before. Read it with pytest -rP."""
    delays = [once(number) for number in range(TIMES)]
    print(f"{what}:", *(f"{delay * 1000:.1f}" for delay in delays), "ms")
    return statistics.median(delays)
