"""`python -m benchmarks.listens`: costs of a thousand listening clients.

The tables also have the time until a change reaches all clients. The server is one uvicorn worker with uvloop and
httptools, as in all measurements. An application that only holds streams open is measured in the same run; the
difference to it is the cost of this package. Memory is the resident set of the worker with the streams open, less the
resident set before, when a few had been opened and closed already. A change is timed from the first byte of the request
that publishes it to the last byte of the last client's event. The CPU time of the worker in that time is a better
figure on a machine with other load.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.processes import Command, NotStarted, Running, cores, on_core, start, stop, wait
from benchmarks.wire import CLIENT, STATELESS_VERSION

STREAMS = 1000
WARMING = 20
"""Streams that are opened and closed first, because one-time costs are not counted."""
AT_ONCE = 50
"""Streams that are being opened at the same time."""
CHANGES = 9
SETTLED = 1.0
"""Seconds of quiet before memory is read."""
MEMORY_AIM, TIME_AIM = 15.0, 250.0
"""KB for each stream, and milliseconds for a change (docs/design/performance.md)."""
OPENED, CHANGED = b"notifications/subscriptions/acknowledged", b"notifications/tools/list_changed"
META = "io.modelcontextprotocol/"


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """A kind of server that holds streams open."""

    label: str
    command: Command
    listen: Callable[[Running], bytes]
    publish: Callable[[Running], bytes]


@dataclass(slots=True)
class Figures:
    """The measurement of one subject."""

    before: float = 0.0
    """Resident set in KB, without streams."""
    with_streams: float = 0.0
    times: list[float] = field(default_factory=list)
    """Milliseconds until a change had reached all clients."""
    work: list[float] = field(default_factory=list)
    """Milliseconds of CPU time of a change."""

    def each(self, streams: int) -> float:
        """Return the KB for one stream."""
        return (self.with_streams - self.before) / streams


class Listener(asyncio.Protocol):
    """A client that counts its notifications."""

    def __init__(self, request: bytes, on_news: Callable[[], None]) -> None:
        self._request, self._on_news = request, on_news
        self.opened: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._read = b""
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        transport.write(self._request)

    def data_received(self, data: bytes) -> None:
        self._read += data
        if not self.opened.done():
            if OPENED in self._read:
                self._read = self._read.partition(OPENED)[2]
                self.opened.set_result(None)
            elif not self._read.startswith(b"HTTP/1.1 200"[: len(self._read)]):
                self.opened.set_exception(RuntimeError(self._read[:200].decode("latin-1")))
            return
        while CHANGED in self._read:
            self._read = self._read.partition(CHANGED)[2]
            self._on_news()

    def connection_lost(self, problem: Exception | None) -> None:
        if not self.opened.done():
            self.opened.set_exception(RuntimeError("the server closed the stream"))

    def close(self) -> None:
        if self._transport is not None:
            self._transport.abort()


class Crowd:
    """All clients of one server."""

    def __init__(self, subject: Subject, running: Running) -> None:
        self._subject, self._running = subject, running
        self._listeners: list[Listener] = []
        self._notified = 0
        self._all_notified = asyncio.Event()

    async def open(self, streams: int) -> None:
        """Open streams, a few at a time, and wait for each acknowledgement."""
        room = asyncio.Semaphore(AT_ONCE)

        async def one() -> None:
            async with room:
                listener = Listener(self._subject.listen(self._running), self._count)
                loop = asyncio.get_running_loop()
                await loop.create_connection(lambda: listener, "127.0.0.1", self._running.port)
                await asyncio.wait_for(listener.opened, 30)
                self._listeners.append(listener)

        await asyncio.gather(*(one() for _ in range(streams)))

    def _count(self) -> None:
        self._notified += 1
        if self._notified == len(self._listeners):
            self._all_notified.set()

    async def change(self) -> float:
        """Publish a change. Return the milliseconds until every client is notified."""
        self._notified = 0
        self._all_notified.clear()
        reader, writer = await asyncio.open_connection("127.0.0.1", self._running.port)
        began = time.perf_counter()
        writer.write(self._subject.publish(self._running))
        await asyncio.wait_for(self._all_notified.wait(), 30)
        took = time.perf_counter() - began
        status = await reader.readline()
        if b" 200 " not in status:
            raise RuntimeError(status.decode("latin-1"))
        writer.close()
        return took * 1000

    async def close(self) -> None:
        """Close all streams."""
        for listener in self._listeners:
            listener.close()
        self._listeners.clear()
        await asyncio.sleep(SETTLED)


async def measure(subject: Subject, running: Running, streams: int, changes: int) -> Figures:
    """Open streams, read the memory, publish changes, and close the streams."""
    figures, crowd = Figures(), Crowd(subject, running)
    await crowd.open(WARMING)
    await crowd.change()
    await crowd.close()
    figures.before = resident(running)
    await crowd.open(streams)
    await asyncio.sleep(SETTLED)
    figures.with_streams = resident(running)
    for _ in range(changes):
        worked = worked_for(running)
        figures.times.append(await crowd.change())
        await asyncio.sleep(0.1)
        figures.work.append(worked_for(running) - worked)
    await crowd.close()
    return figures


def resident(running: Running) -> float:
    """Return the resident set of a server, in KB."""
    for line in Path(f"/proc/{running.process.pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return float(line.split()[1])
    raise RuntimeError("the server is gone")


def worked_for(running: Running) -> float:
    """Return the CPU time of all threads of a server so far, in milliseconds."""
    fields = Path(f"/proc/{running.process.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) * 1000 / os.sysconf("SC_CLK_TCK")


def _post(running: Running, path: str, headers: dict[str, str], body: bytes) -> bytes:
    lines = {
        "Host": f"127.0.0.1:{running.port}",
        "Content-Type": "application/json",
        "Accept": "application/json, text/event-stream",
        "Content-Length": str(len(body)),
        **headers,
        **running.headers,
    }
    head = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
    return f"POST {path} HTTP/1.1\r\n{head}\r\n".encode() + body


def _request(running: Running, path: str, method: str, params: dict[str, object], name: str | None = None) -> bytes:
    meta = {META + "protocolVersion": STATELESS_VERSION, META + "clientCapabilities": {}, META + "clientInfo": CLIENT}
    message = {"jsonrpc": "2.0", "id": 1, "method": method, "params": {**params, "_meta": meta}}
    headers = {"MCP-Protocol-Version": STATELESS_VERSION, "Mcp-Method": method}
    if name is not None:
        headers["Mcp-Name"] = name
    return _post(running, path, headers, json.dumps(message).encode())


def _ours(label: str, path: str, *arguments: str) -> Subject:
    return Subject(
        label=label,
        command=Command(
            arguments=("-m", "benchmarks.serve", "--port", "{port}", *arguments),
            environment=(("BENCH_ANNOUNCE", "1"),),
            greets="token" in arguments,
        ),
        listen=lambda running: _request(
            running, path, "subscriptions/listen", {"notifications": {"toolsListChanged": True}}
        ),
        publish=lambda running: _request(
            running, path, "tools/call", {"name": "announce", "arguments": {}}, "announce"
        ),
    )


SUBJECTS = (
    Subject(
        label="bare ASGI stream",
        command=Command(arguments=("-m", "benchmarks.servers.idle")),
        listen=lambda running: _post(running, "/listen", {}, b"{}"),
        publish=lambda running: _post(running, "/publish", {}, b"{}"),
    ),
    _ours("ours, door", "/mcp"),
    _ours("ours, door, token", "/mcp", "--auth", "token"),
    _ours("ours, Django view", "/view/mcp"),
)


def markdown(found: dict[str, Figures], streams: int) -> str:
    """Return the table."""
    lines = [
        f"{streams} open streams on one worker",
        "",
        "| row | KB for each | KB in all, before and with them | a change reaches all, ms (median, worst) | CPU, ms |",
        "| --- | ---: | ---: | ---: | ---: |",
    ]
    for label, figures in found.items():
        median, worst = statistics.median(figures.times), max(figures.times)
        lines.append(
            f"| {label} | {figures.each(streams):.1f} | {figures.before:.0f}, {figures.with_streams:.0f} "
            f"| {median:.0f}, {worst:.0f} | {statistics.median(figures.work):.0f} |"
        )
    door = found.get("ours, door")
    if door is not None:
        each, took = door.each(streams), statistics.median(door.times)
        memory, speed = ("met" if met else "MISSED" for met in (each < MEMORY_AIM, took < TIME_AIM))
        lines += ["", f"Aims for the door: {MEMORY_AIM:g} KB each: {memory}; {TIME_AIM:g} ms to all: {speed}."]
    return "\n".join(lines)


def main(arguments: list[str] | None = None) -> int:
    """Run, and print the table.

    Returns 1 if a server did not start or answered wrongly.
    """
    parser = argparse.ArgumentParser(prog="python -m benchmarks.listens", description=__doc__)
    parser.add_argument("--streams", type=int, default=STREAMS)
    parser.add_argument("--changes", type=int, default=CHANGES)
    parser.add_argument("--only", action="append", metavar="TEXT", help="only rows with this in their label")
    options = parser.parse_args(arguments)
    found: dict[str, Figures] = {}
    server_core, client_core = cores()
    for subject in SUBJECTS:
        if options.only and not any(text.lower() in subject.label.lower() for text in options.only):
            continue
        running = start(subject.command, server_core)
        try:
            wait(running)
            with on_core(client_core):
                found[subject.label] = asyncio.run(measure(subject, running, options.streams, options.changes))
        except (NotStarted, RuntimeError, TimeoutError) as problem:
            sys.stderr.write(f"FAILED {subject.label}: {problem!r}\n")
            return 1
        finally:
            stop(running)
    print(markdown(found, options.streams))
    return 0


if __name__ == "__main__":
    sys.exit(main())
