"""`python -m benchmarks.idle`: costs of a thousand idle clients.

Each row has a worker of its own. Sockets that only echo are measured in the same run. Memory is the resident set of the
worker with the clients connected, less the resident set before, when a few clients had come and gone already. The CPU
time of the worker with idle clients is read over some seconds. It is the time of keep-alives and pings, of the web
server and of this package.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Callable
from dataclasses import dataclass

from benchmarks import report
from benchmarks.listens import resident, worked_for
from benchmarks.processes import Command, NotStarted, Running, cores, on_core, start, stop, wait
from benchmarks.socket_load import opening
from benchmarks.subjects import served
from benchmarks.wire import Dialect, Frames, Target, frame, initialize, initialized, to_json

CLIENTS = 1000
WARMING = 20
"""Clients that come and go first, because one-time costs are not counted."""
AT_ONCE = 20
"""Clients that are connecting at the same time."""
SETTLED = 1.0
"""Seconds of quiet before memory is read."""
QUIET = 10.0
"""Seconds over which a worker with idle clients is watched."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """Bytes that a client sends, and the bytes that it then waits for, if any."""

    send: bytes
    until: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """A kind of connection."""

    label: str
    command: Command
    steps: Callable[[int], list[Step]]
    """Function that returns the first steps of a client, for the port of the server."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """The measurement of one subject."""

    each: float
    """KB of memory for one client."""
    opening: float
    """Milliseconds of CPU until a client was connected."""
    quiet: float
    """Milliseconds of CPU in a second, for all clients."""


class Guest(asyncio.Protocol):
    """A client that takes its steps and then sends nothing."""

    def __init__(self, steps: list[Step]) -> None:
        self._steps, self._read = steps, b""
        self.there: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        transport.write(self._steps[0].send)

    def data_received(self, data: bytes) -> None:
        if self.there.done():
            return
        self._read += data
        while self._steps and self._steps[0].until in self._read:
            until = self._steps.pop(0).until
            self._read = self._read.partition(until)[2] if until else self._read
            if self._steps and self._transport is not None:
                self._transport.write(self._steps[0].send)
        if not self._steps:
            self.there.set_result(None)

    def connection_lost(self, problem: Exception | None) -> None:
        if not self.there.done():
            self.there.set_exception(RuntimeError(f"the server hung up after {self._read[:300]!r}"))

    def leave(self) -> None:
        """Close the connection."""
        if self._transport is not None:
            self._transport.abort()


async def connect(subject: Subject, port: int, clients: int) -> list[Guest]:
    """Connect clients, a few at a time."""
    room, guests, loop = asyncio.Semaphore(AT_ONCE), list[Guest](), asyncio.get_running_loop()

    async def one() -> None:
        async with room:
            _, guest = await loop.create_connection(lambda: Guest(subject.steps(port)), "127.0.0.1", port)
            guests.append(guest)
            await asyncio.wait_for(guest.there, 30)

    await asyncio.gather(*(one() for _ in range(clients)))
    return guests


async def leave(guests: list[Guest]) -> None:
    """Close all connections."""
    for guest in guests:
        guest.leave()
    await asyncio.sleep(SETTLED)


async def measure(subject: Subject, running: Running, clients: int) -> Figures:
    """Connect clients, read the memory and the CPU time of the worker, and leave."""
    await leave(await connect(subject, running.port, WARMING))
    before, worked = resident(running), worked_for(running)
    guests = await connect(subject, running.port, clients)
    took = worked_for(running) - worked
    await asyncio.sleep(SETTLED)
    memory, worked = resident(running), worked_for(running)
    await asyncio.sleep(QUIET)
    quiet = worked_for(running) - worked
    await leave(guests)
    return Figures(each=(memory - before) / clients, opening=took / clients, quiet=quiet / QUIET)


def _socket(path: str, dialect: Dialect) -> Callable[[int], list[Step]]:
    """Return the steps of a WebSocket with one request and its response."""

    def steps(port: int) -> list[Step]:
        found = [Step(send=opening(Target(port=port, path=path, dialect=dialect)), until=b"\r\n\r\n")]
        if dialect is Dialect.HANDSHAKE:
            return [
                *found,
                Step(send=frame(to_json(initialize())), until=b'"serverInfo"'),
                Step(send=frame(to_json(initialized())), until=b""),
            ]
        _, request, expected = Frames(dialect).make()
        return [*found, Step(send=request, until=expected)]

    return steps


def _subjects(server: str) -> list[Subject]:
    echo, ours = Command(arguments=("-m", "benchmarks.servers.echo", server)), served("--server", server)
    constant = Dialect.CONSTANT
    return [
        Subject(label=f"{server}: bare ASGI echo", command=echo, steps=_socket("/bare", constant)),
        Subject(label=f"{server}: Channels echo", command=echo, steps=_socket("/channels", constant)),
        Subject(label=f"{server}: ours, WebSocket, modern", command=ours, steps=_socket("/mcp/ws", Dialect.STATELESS)),
        Subject(label=f"{server}: ours, WebSocket, legacy", command=ours, steps=_socket("/mcp/ws", Dialect.HANDSHAKE)),
        Subject(label=f"{server}: ours, HTTP+SSE, only opened", command=ours, steps=_stream),
    ]


def _stream(port: int) -> list[Step]:
    """Return the step of an HTTP+SSE stream that has sent its endpoint."""
    request = f"GET /mcp/sse HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nAccept: text/event-stream\r\n\r\n"
    return [Step(send=request.encode(), until=b"event: endpoint")]


def main(arguments: list[str] | None = None) -> int:
    """Run, and print the table.

    Returns 1 if a server did not start or a client could not connect.
    """
    parser = argparse.ArgumentParser(prog="python -m benchmarks.idle", description=__doc__)
    parser.add_argument("--clients", type=int, default=CLIENTS)
    parser.add_argument("--only", action="append", metavar="TEXT", help="only rows with this in their label")
    options = parser.parse_args(arguments)
    lines, failed = list[list[str]](), False
    server_core, client_core = cores()
    for subject in [*_subjects("uvicorn"), *_subjects("daphne")]:
        if options.only and not any(text.lower() in subject.label.lower() for text in options.only):
            continue
        running = start(subject.command, server_core)
        try:
            wait(running)
            with on_core(client_core):
                found = asyncio.run(measure(subject, running, options.clients))
        except (NotStarted, OSError, RuntimeError, TimeoutError) as problem:
            sys.stderr.write(f"FAILED {subject.label}: {problem!r}\n")
            failed = True
            continue
        finally:
            stop(running)
        lines.append([subject.label, f"{found.each:.1f}", f"{found.opening:.2f}", f"{found.quiet:.1f}"])
    print(f"{options.clients} idle clients on one worker\n")
    print(report.table(["", "KB for each", "CPU ms to connect one", "CPU ms a second, for all"], lines))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
