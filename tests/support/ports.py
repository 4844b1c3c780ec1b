"""Ports that stay reserved while a server starts, runs and starts again."""

import socket

_holders: list[socket.socket] = []


def take_port() -> int:
    """Reserve a port of the loopback address for a server, until this process ends.

    A bound socket that does not listen holds it, so the kernel gives the port to no socket that asks for any port. A
    server can still bind it by its number, because both sides allow reuse, as all servers here do.
    """
    holder = socket.socket()
    holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    holder.bind(("127.0.0.1", 0))
    _holders.append(holder)
    port: int = holder.getsockname()[1]
    return port
