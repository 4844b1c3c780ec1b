"""The fixtures server of the conformance suite in a process of its own, for tests that need a real socket."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from tests.conformance.__main__ import listens
from tests.support.ports import take_port
from tests.support.waiting import wait_until


@contextmanager
def live_server() -> Iterator[int]:
    """The port that it listens on: the ASGI application at /mcp, the Django view at /view/mcp."""
    port = take_port()
    process = subprocess.Popen([sys.executable, "-m", "tests.conformance.server", "--port", str(port)])
    try:
        wait_until(lambda: process.poll() is not None or listens(port), "the fixtures server did not come up")
        assert process.poll() is None, "the fixtures server ended"
        yield port
    finally:
        process.terminate()
        process.wait()
