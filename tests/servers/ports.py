"""Ports that stay reserved while a server starts, runs and starts again."""

import socket
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def reserve_port() -> Iterator[int]:
    """Reserve a port of the loopback address for a server, until the block ends.

    A bound socket that does not listen holds it. The kernel does not choose it for a socket that asks for any
    port. Servers can still bind it by its number, because both sides allow reuse, as all servers here do.
    """
    with socket.socket() as holder:
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        holder.bind(("127.0.0.1", 0))
        yield holder.getsockname()[1]
