"""Server processes, each on a given core."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

ROOT = Path(__file__).resolve().parent.parent
START_SECONDS = 60.0
STOP_SECONDS = 10.0


class NotStarted(Exception):
    """A server did not start. The text is the end of its output."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """A command that starts a server. Equal commands share a process."""

    arguments: tuple[str, ...]
    """The arguments after the interpreter. `{port}` stands for the port."""
    environment: tuple[tuple[str, str], ...] = ()
    python: str = sys.executable
    directory: Path = ROOT
    """The working directory, whose modules are imported before installed ones."""
    greets: bool = False
    """True if the process prints headers to send with each request, and then an empty line."""


@dataclass(slots=True, kw_only=True)
class Running:
    """A server that has been started."""

    process: subprocess.Popen[str]
    port: int
    log: IO[str]
    headers: dict[str, str] = field(default_factory=dict)


def cores() -> tuple[int, int]:
    """Return the core for the servers and the core for the client.

    They are the same on a machine with one core.
    """
    available = sorted(os.sched_getaffinity(0))
    return available[0], available[-1] if len(available) < 2 else available[1]


@contextmanager
def on_core(core: int) -> Iterator[None]:
    """Run this process, and the processes that it starts, on one core."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {core})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def free_port() -> int:
    """Return a port of loopback that is free at the moment."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def start(command: Command, core: int) -> Running:
    """Start a server on one core and a free port.

    It may not be listening yet; use `wait`.
    """
    port = free_port()
    log = tempfile.TemporaryFile("w+")  # noqa: SIM115 -- closed by `stop`
    environment = {**os.environ, **dict(command.environment), "PORT": str(port)}
    with on_core(core):
        process = subprocess.Popen(
            [command.python, *(argument.format(port=port) for argument in command.arguments)],
            cwd=command.directory,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE if command.greets else subprocess.DEVNULL,
            stderr=log,
            text=True,
        )
    return Running(process=process, port=port, log=log)


def wait(running: Running) -> None:
    """Wait until a server accepts connections, and read the headers that it prints.

    Raises:
        NotStarted: The server ended, or did not listen in time.
    """
    if running.process.stdout is not None:
        while line := running.process.stdout.readline().strip():
            name, _, value = line.partition(": ")
            running.headers[name] = value
    end = time.monotonic() + START_SECONDS
    while time.monotonic() < end:
        if running.process.poll() is not None:
            break
        try:
            socket.create_connection(("127.0.0.1", running.port), timeout=1).close()
        except OSError:
            time.sleep(0.05)
        else:
            return
    running.log.seek(0)
    raise NotStarted(running.log.read()[-2000:].strip() or "it said nothing")


def stop(running: Running) -> None:
    """Terminate a server, and kill it if it does not end in time."""
    running.process.terminate()
    try:
        running.process.wait(STOP_SECONDS)
    except subprocess.TimeoutExpired:
        running.process.kill()
        running.process.wait()
    if running.process.stdout is not None:
        running.process.stdout.close()
    running.log.close()
