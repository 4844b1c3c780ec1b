"""A load balancer in front of several servers: each request of a page goes to the next of them."""

import itertools
import re
import selectors
import socket
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from tests.servers.harness import Server

_PIECE_BYTES = 1 << 16
_KEPT_ALIVE = re.compile(rb"^connection: *keep-alive", re.IGNORECASE | re.MULTILINE)
_STATIC = re.compile(rb"GET /static/")


@contextmanager
def balance(servers: Sequence[Server]) -> Iterator[str]:
    """Balance until the block ends. Returns the URL, without a path."""
    ports = itertools.cycle([server.port for server in servers])
    listener = socket.create_server(("127.0.0.1", 0))

    def accept() -> None:
        while True:
            try:
                client, _ = listener.accept()
            except OSError:  # it was shut down
                return
            threading.Thread(target=forward, args=[client], daemon=True).start()

    def forward(client: socket.socket) -> None:
        with client:
            head = _read_head(client)
            if head:
                port = servers[0].port if _STATIC.match(head) else next(ports)
                with socket.create_connection(("127.0.0.1", port)) as server:
                    # With one request on each connection, the next one reaches another server.
                    server.sendall(_KEPT_ALIVE.sub(b"Connection: close", head, count=1))
                    _copy_until_end(client, server)

    thread = threading.Thread(target=accept)
    thread.start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join()


def _read_head(client: socket.socket) -> bytes:
    """Read up to the end of the headers; nothing from a connection that the browser opened in advance."""
    data = b""
    while b"\r\n\r\n" not in data:
        piece = client.recv(_PIECE_BYTES)
        if not piece:
            return b""
        data += piece
    return data


def _copy_until_end(client: socket.socket, server: socket.socket) -> None:
    """Copy in both directions until one side closes, as the other has to learn of it."""
    others = {client: server, server: client}
    with selectors.DefaultSelector() as selector:
        for one in others:
            selector.register(one, selectors.EVENT_READ)
        while True:
            for key, _ in selector.select():
                one = key.fileobj
                assert isinstance(one, socket.socket)
                try:
                    piece = one.recv(_PIECE_BYTES)
                    others[one].sendall(piece)
                except OSError:
                    return
                if not piece:
                    return
