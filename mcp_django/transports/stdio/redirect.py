"""The process's own stdin and stdout, taken away from everything else in it.

On stdio "the server MUST NOT write anything to its stdout that is not a valid MCP message" (basic/transports), and a
project prints: in settings, in tools, from C code, in child processes. So the descriptors are moved where nobody knows
them, and what writes to stdout from then on writes to stderr; what reads from stdin finds it at its end.

Nothing here needs Django: `python -m mcp_django` takes the streams before settings and apps are imported.
"""

import os
import sys
from typing import NamedTuple

STDIN, STDOUT, STDERR = 0, 1, 2


class Streams(NamedTuple):
    """File descriptors that children do not inherit."""

    source: int
    """What was stdin."""
    sink: int
    """What was stdout."""


_taken: list[Streams] = []


def take() -> Streams:
    """Move stdin and stdout away, once for a process; later calls give the same descriptors.

    What Python has buffered for stdout until now goes to stderr too, so it must not be flushed before: with a pipe as
    stdout that is what settings and apps have printed while they were imported. Raises OSError when stdin or stdout is
    closed.
    """
    if not _taken:
        _taken.append(_move())
        if sys.stdout is not None and hasattr(sys.stdout, "reconfigure"):
            sys.stdout.reconfigure(line_buffering=True)
    return _taken[0]


def _move() -> Streams:
    # First, because a duplicate takes the lowest number that is free, which is that of a stream that is closed.
    os.fstat(STDIN)
    os.fstat(STDOUT)
    nothing = os.open(os.devnull, os.O_RDWR)
    if nothing == STDERR:
        os.set_inheritable(nothing, True)
        nothing = os.dup(nothing)
    streams = Streams(os.dup(STDIN), os.dup(STDOUT))
    os.dup2(nothing, STDIN)
    os.dup2(STDERR, STDOUT)
    os.close(nothing)
    return streams
