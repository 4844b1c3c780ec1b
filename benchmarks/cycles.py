"""`python -m benchmarks.cycles`: objects per call that only the collector frees.

The number must be 0. One reference cycle on the path of a call costs a quarter of the call under load, because the
collector runs every few hundred allocations. A measurement of the call alone hardly shows it.
"""

from __future__ import annotations

import asyncio
import collections
import gc
import re
import subprocess
import sys

from benchmarks.inprocess import Application, Caller
from benchmarks.processes import ROOT
from benchmarks.serve import project
from benchmarks.wire import EVERYWHERE, Dialect

CALLS = 100
TURNS = 10
"""Turns of the loop after the last call, in which it runs the callbacks that the call has left."""
CASES = [(dialect, work) for dialect in (Dialect.STATELESS, Dialect.HANDSHAKE) for work in EVERYWHERE]


def count_cycles() -> float:
    """Return the number of objects that one call leaves to the cycle collector.

    The result is the largest of both eras and all kinds of work. A process of its own counts, so that the settings and
    the garbage of the caller do not matter.
    """
    command = [sys.executable, "-m", "benchmarks.cycles"]
    finished = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    found = re.search(r"^worst: ([\d.]+)$", finished.stdout, re.MULTILINE)
    if finished.returncode or not found:
        raise RuntimeError(f"the count failed: {finished.stdout} {finished.stderr}")
    return float(found[1])


async def garbage(caller: Caller) -> tuple[float, dict[str, int]]:
    """Return the number of objects per call that only the collector frees.

    The second value has their types, each with the number of objects of all calls.
    """
    await caller.open()
    for _ in range(CALLS // 2):
        await caller.call()
    # The lower of two counts is used, because a rare event (a cache that expires) is no cost of each call.
    looks = [await _look(caller) for _ in range(2)]
    kinds = min(looks, key=lambda look: look.total())
    return kinds.total() / CALLS, dict(kinds.most_common(8))


async def _look(caller: Caller) -> collections.Counter[str]:
    gc.collect()
    gc.disable()
    try:
        for _ in range(CALLS):
            await caller.call()
        for _ in range(TURNS):
            await asyncio.sleep(0)
        gc.set_debug(gc.DEBUG_SAVEALL)
        gc.collect()
        return collections.Counter(type(thing).__qualname__ for thing in gc.garbage)
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()


async def count_all(application: Application) -> float:
    """Print a line for each case, and return the worst number."""
    worst = 0.0
    for dialect, work in CASES:
        per_call, kinds = await garbage(Caller(application, work, dialect))
        worst = max(worst, per_call)
        print(f"{dialect.value:8} {work.value:10} {per_call:6.2f} {kinds or ''}")
    return worst


def main() -> None:
    """Count on the measured project."""
    with project():
        from benchmarks.site.asgi import application

        print(f"worst: {asyncio.run(count_all(application)):g}")


if __name__ == "__main__":
    main()
