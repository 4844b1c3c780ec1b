"""A load client for WebSockets that reads the CPU time of the server.

One thread sends raw frames, and checks each answer. The client knows as much of RFC 6455 as the measured servers use
with a client that offers no extension: text frames that are not fragmented, and pings, which it ignores.
"""

from __future__ import annotations

import base64
import os
import re
import select
import socket
import time

from benchmarks.load import TIMEOUT_SECONDS, Reading, WrongAnswer, cpu_clock, no_collector, reading
from benchmarks.wire import Dialect, Frames, Target, frame, initialize, initialized, to_json

SUBPROTOCOL = "mcp"
_ID = re.compile(rb'"id": ?(\d+)')
_READ = 1 << 18
_TEXT, _CLOSE = 0x81, 0x08
"""A complete text frame, and the opcode of a close frame. Greater opcodes are pings and pongs."""


def opening(target: Target) -> bytes:
    """Return the request that opens a WebSocket."""
    lines = {
        "Host": f"127.0.0.1:{target.port}",
        "Connection": "Upgrade",
        "Upgrade": "websocket",
        "Sec-WebSocket-Version": "13",
        "Sec-WebSocket-Key": base64.b64encode(os.urandom(16)).decode(),
        **({} if target.dialect is Dialect.CONSTANT else {"Sec-WebSocket-Protocol": SUBPROTOCOL}),
        **target.headers,
    }
    head = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
    return f"GET {target.path} HTTP/1.1\r\n{head}\r\n".encode()


class Socket:
    """A WebSocket, and the answers that it is receiving."""

    __slots__ = ("_frames", "_unread", "_waiting", "socket")

    def __init__(self, target: Target) -> None:
        self.socket = socket.create_connection(("127.0.0.1", target.port), timeout=TIMEOUT_SECONDS)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._unread = b""
        self._waiting: dict[int, tuple[float, bytes]] = {}
        self._frames = Frames(target.dialect)
        self.socket.sendall(opening(target))
        while b"\r\n\r\n" not in self._unread:
            self._read()
        head, _, self._unread = self._unread.partition(b"\r\n\r\n")
        if head[9:12] != b"101":
            raise WrongAnswer(f"the handshake was refused: {head[:300]!r}")
        if target.dialect is Dialect.HANDSHAKE:
            self._handshake()

    def _handshake(self) -> None:
        self.socket.sendall(frame(to_json(initialize())))
        while not (answers := self._whole()):
            self._read()
        if b'"serverInfo"' not in answers[0]:
            raise WrongAnswer(f"initialize: {answers[0][:500]!r}")
        self.socket.sendall(frame(to_json(initialized())))

    def send(self, number: int) -> None:
        """Send a number of requests at once."""
        at, waiting, make = time.perf_counter(), self._waiting, self._frames.make
        requests = []
        for _ in range(number):
            identifier, request, expected = make()
            waiting[identifier] = at, expected
            requests.append(request)
        self.socket.sendall(b"".join(requests))

    def receive(self) -> list[float]:
        """Read the available bytes, and return the latencies of completed answers.

        The latencies are in seconds.

        Raises:
            WrongAnswer: one of the answers is wrong.
        """
        self._read()
        at, latencies = time.perf_counter(), []
        for answer in self._whole():
            found = _ID.search(answer)
            sent = self._waiting.pop(int(found[1]), None) if found else None
            if sent is None or sent[1] not in answer or b'"isError":true' in answer:
                raise WrongAnswer(f"expected {sent}, got {answer[:700]!r}")
            latencies.append(at - sent[0])
        return latencies

    def _read(self) -> None:
        data = self.socket.recv(_READ)
        if not data:
            raise WrongAnswer(f"the server closed the connection after {self._unread[:300]!r}")
        self._unread = self._unread + data if self._unread else data

    def _whole(self) -> list[bytes]:
        """Return the texts of the complete frames."""
        unread, at, texts = self._unread, 0, []
        while len(unread) >= at + 2:
            kind, size, begin = unread[at], unread[at + 1], at + 2
            if size == 126:
                size, begin = int.from_bytes(unread[at + 2 : at + 4], "big"), at + 4
            end = begin + size
            if len(unread) < end:
                break
            if kind == _TEXT:
                texts.append(unread[begin:end])
            elif kind & 0x0F <= _CLOSE:
                raise WrongAnswer(f"a frame of another kind: {unread[at:end][:300]!r}")
            at = end
        self._unread = unread[at:]
        return texts


class SocketLoad:
    """WebSockets that send calls of "add" to a server, several at a time on each.

    The use is that of `load.Load`.
    """

    def __init__(self, target: Target, *, connections: int, in_flight: int, pid: int) -> None:
        self._in_flight, self._pid = in_flight, pid
        self._sockets: list[Socket] = []
        try:
            for _ in range(connections):
                self._sockets.append(Socket(target))
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Close the connections."""
        for each in self._sockets:
            each.socket.close()
        self._sockets.clear()

    def measure(self, total: int) -> Reading:
        """Send `total` requests, check each response, and return the cost of one.

        Raises:
            WrongAnswer: an answer is wrong, or none came for 30 seconds.
        """
        with no_collector():
            cpu, start = cpu_clock(self._pid), time.perf_counter()
            latencies = self._run(total)
            wall, cpu = time.perf_counter() - start, cpu_clock(self._pid) - cpu
        return reading(latencies, cpu=cpu, wall=wall)

    def _run(self, total: int) -> list[float]:
        latencies: list[float] = []
        with select.epoll() as poll:
            sockets = {each.socket.fileno(): each for each in self._sockets}
            unsent = total
            for number, each in sockets.items():
                poll.register(number, select.EPOLLIN)
                if first := min(unsent, self._in_flight):
                    unsent -= first
                    each.send(first)
            while len(latencies) < total:
                ready = poll.poll(TIMEOUT_SECONDS)
                if not ready:
                    raise WrongAnswer(f"no answer within {TIMEOUT_SECONDS:.0f} seconds")
                for number, _ in ready:
                    answered = sockets[number].receive()
                    latencies += answered
                    if more := min(unsent, len(answered)):
                        unsent -= more
                        sockets[number].send(more)
        return latencies
