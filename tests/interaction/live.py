"""The fixtures server of the conformance suite in a process of its own, for tests that need a real socket."""

import socket
from collections.abc import Iterator
from contextlib import contextmanager

from tests.conformance.__main__ import fixtures_server


@contextmanager
def live_server() -> Iterator[int]:
    """The port that it listens on: the ASGI transport at /mcp, the Django view at /view/mcp."""
    port = free_port()
    with fixtures_server(port):
        yield port


def free_port() -> int:
    """A port of loopback that nobody listens on."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
    return port
