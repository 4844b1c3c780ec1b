"""Redirection of stdin and stdout, so that only the transport can use them.

On stdio "the server MUST NOT write anything to its stdout that is not a valid MCP message" (basic/transports). Projects
print in settings, in tools, from C code and in child processes. The descriptors are therefore duplicated to private
numbers. Later writes to stdout go to stderr, and stdin is at its end.

This module needs no Django: `python -m mcp_django` redirects the streams before it imports settings and apps.
"""

import os
import sys
from typing import NamedTuple

STDIN, STDOUT, STDERR = 0, 1, 2


class StandardStreams(NamedTuple):
    """Private file descriptors, which child processes do not inherit."""

    stdin: int
    """Duplicate of the original stdin."""
    stdout: int
    """Duplicate of the original stdout."""


_redirected: list[StandardStreams] = []


def redirect_standard_streams() -> StandardStreams:
    """Redirect stdin and stdout once per process; return the private descriptors.

    Output that Python has buffered for stdout goes to stderr too, so it must not be flushed before. With a pipe as
    stdout, this is the output of settings and apps during import. Raises OSError when stdin or stdout is closed.
    """
    if not _redirected:
        _redirected.append(_redirect())
        if sys.stdout is not None and hasattr(sys.stdout, "reconfigure"):
            sys.stdout.reconfigure(line_buffering=True)
    return _redirected[0]


def _redirect() -> StandardStreams:
    # Check first, because a duplicate takes the lowest free number, which may be that of a closed stream.
    os.fstat(STDIN)
    os.fstat(STDOUT)
    devnull = os.open(os.devnull, os.O_RDWR)
    if devnull == STDERR:
        os.set_inheritable(devnull, True)
        devnull = os.dup(devnull)
    streams = StandardStreams(os.dup(STDIN), os.dup(STDOUT))
    os.dup2(devnull, STDIN)
    os.dup2(STDERR, STDOUT)
    os.close(devnull)
    return streams
