"""A load client for HTTP that reads the CPU time of the server.

One thread sends requests on raw keep-alive sockets, and checks each answer. The client knows as much of HTTP/1.1 as the
measured servers use: a Content-Length or chunked framing, and connections that stay open. It runs only on Linux,
because it uses epoll and reads the CPU clock of another process.
"""

from __future__ import annotations

import gc
import re
import select
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks.wire import Dialect, Expected, Requests, Target, Work, initialize, initialized, session_headers

_LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)
_SESSION = re.compile(rb"\r\nmcp-session-id: *([!-~]+)", re.IGNORECASE)
_CHUNKED = re.compile(rb"\r\ntransfer-encoding: *chunked", re.IGNORECASE)
_HEAD_END = b"\r\n\r\n"
_CHUNKS_END = b"\r\n0\r\n\r\n"
_READ = 1 << 18
TIMEOUT_SECONDS = 30.0


class WrongAnswer(Exception):
    """The server gave a wrong response, so the measurement of this cell is invalid."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """The figures of one measurement."""

    cpu_us: float
    """CPU time of the server process per request: user and system, all threads."""
    busy: float
    """Share of the wall time in which the server used its core."""
    per_second: float
    p50_us: float
    p99_us: float
    """Latency that the client measured."""
    requests: int


def reading(latencies: list[float], *, cpu: int, wall: float) -> Reading:
    """Return the figures of one measurement.

    Args:
        latencies: Seconds, one for each request.
        cpu: CPU time of the server in nanoseconds.
        wall: Seconds of the measurement.
    """
    latencies.sort()
    total = len(latencies)
    return Reading(
        cpu_us=cpu / 1000 / total,
        busy=cpu / 1e9 / wall,
        per_second=total / wall,
        p50_us=latencies[total // 2] * 1e6,
        p99_us=latencies[total * 99 // 100] * 1e6,
        requests=total,
    )


def cpu_clock(pid: int) -> int:
    """Return the CPU time of another process in nanoseconds.

    The user and system time of all threads counts, without child processes. The number of the clock is that of
    clock_getcpuclockid(3): the inverted process id, then 2 for "scheduler time".
    """
    return time.clock_gettime_ns((~pid << 3) | 2)


def memory_mb(pid: int) -> float:
    """Return the resident memory of a process in MB."""
    status = Path(f"/proc/{pid}/status").read_text()
    found = re.search(r"VmRSS:\s+(\d+) kB", status)
    return int(found[1]) / 1024 if found else 0.0


class Connection:
    """A socket, and the answer that it is receiving."""

    __slots__ = ("_answer", "_body_at", "_chunked", "_whole_at", "expected", "sent_at", "session", "socket")

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=TIMEOUT_SECONDS)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.session = ""
        self.expected = Expected(())
        self.sent_at = 0.0
        self._answer, self._body_at, self._whole_at, self._chunked = b"", 0, 0, False

    def send(self, request: bytes, expected: Expected) -> None:
        """Send a request. The request before must have been answered."""
        self._answer, self._body_at, self._chunked, self.expected = b"", 0, False, expected
        self.sent_at = time.perf_counter()
        self.socket.sendall(request)

    def receive(self) -> bool:
        """Read the available bytes, and return True if the answer is complete."""
        data = self.socket.recv(_READ)
        if not data:
            raise WrongAnswer(f"the server closed the connection after {self._answer[:300]!r}")
        self._answer = answer = self._answer + data if self._answer else data
        if not self._body_at:
            end = answer.find(_HEAD_END)
            if end < 0:
                return False
            self._body_at = end + 4
            length = _LENGTH.search(answer, 0, end + 2)
            self._chunked = length is None and _CHUNKED.search(answer, 0, end + 2) is not None
            self._whole_at = self._body_at + (int(length[1]) if length else 0)
        if self._chunked:
            return answer.endswith(_CHUNKS_END)
        return len(answer) >= self._whole_at

    def check(self) -> None:
        """Raise WrongAnswer unless the answer is a 200 with the expected body."""
        if self._answer[9:12] != b"200" or not self.expected.fits(self.body()):
            raise WrongAnswer(f"expected {self.expected}, got {self._answer[:700]!r}")

    def body(self) -> bytes:
        """Return the body of the complete answer, without chunked framing."""
        raw = self._answer[self._body_at :]
        return b"".join(_chunks(raw)) if self._chunked else raw

    def exchange(self, request: bytes) -> tuple[int, bytes, bytes]:
        """Send a request outside the measurement, and return status, head and body."""
        self.send(request, Expected(()))
        while not self.receive():
            pass
        return int(self._answer[9:12]), self._answer[: self._body_at], self.body()

    def handshake(self, target: Target) -> None:
        """Open a session of the handshake era on this connection."""
        status, head, body = self.exchange(target.post(initialize()))
        if status != 200 or b'"serverInfo"' not in body:
            raise WrongAnswer(f"initialize: {status} {body[:500]!r}")
        key = _SESSION.search(head)
        self.session = key[1].decode() if key else ""
        status, _, body = self.exchange(target.post(initialized(), session_headers(self.session)))
        if status not in (200, 202, 204):
            raise WrongAnswer(f"notifications/initialized: {status} {body[:500]!r}")

    def close(self, target: Target) -> None:
        """End the session, if there is one, and close the connection.

        A server that forbids DELETE keeps its session.
        """
        try:
            if self.session:
                self.exchange(target.delete(self.session))
        except (OSError, WrongAnswer):
            pass
        finally:
            self.socket.close()


def _chunks(raw: bytes) -> Iterator[bytes]:
    at = 0
    while True:
        end = raw.index(b"\r\n", at)
        size = int(raw[at:end].split(b";")[0], 16)
        if not size:
            return
        yield raw[end + 2 : end + 2 + size]
        at = end + 4 + size


class Load:
    """Connections that send requests of one kind of work to a server, one at a time."""

    def __init__(self, target: Target, work: Work, *, connections: int, tools: int, pid: int) -> None:
        """Open the connections.

        Args:
            target: The endpoint and its dialect.
            work: The kind of work of each request.
            connections: The number of connections, each with one request in flight.
            tools: The number of tools of the server, all of which a `tools/list` must return.
            pid: The id of the server's process.
        """
        self._target, self._pid = target, pid
        self._pairs: list[tuple[Connection, Requests]] = []
        try:
            for _ in range(connections):
                connection = Connection(target.port)
                if target.dialect is Dialect.HANDSHAKE:
                    connection.handshake(target)
                self._pairs.append((connection, Requests(target, work, session=connection.session, tools=tools)))
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """End the sessions and close the sockets."""
        for connection, _ in self._pairs:
            connection.close(self._target)
        self._pairs.clear()

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
        clock = time.perf_counter
        with select.epoll() as poll:
            waiting: dict[int, tuple[Connection, Requests]] = {}
            for connection, requests in self._pairs[:total]:
                poll.register(connection.socket, select.EPOLLIN)
                waiting[connection.socket.fileno()] = connection, requests
                connection.send(*requests.make())
            unsent = total - len(waiting)
            while len(latencies) < total:
                ready = poll.poll(TIMEOUT_SECONDS)
                if not ready:
                    raise WrongAnswer(f"no answer within {TIMEOUT_SECONDS:.0f} seconds")
                for number, _ in ready:
                    connection, requests = waiting[number]
                    if not connection.receive():
                        continue
                    latencies.append(clock() - connection.sent_at)
                    connection.check()
                    if unsent:
                        unsent -= 1
                        connection.send(*requests.make())
        return latencies


@contextmanager
def no_collector() -> Iterator[None]:
    """Disable the cycle collector, whose pauses are no latency of the server."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
