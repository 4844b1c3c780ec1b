"""Servers in processes of their own: started on a reserved port, waited for, read out, and always ended.

    with serve("uvicorn", workers=2, settings={"MCP": {"AUTH": "none", "LIMITS": {"THREADS": 4}}}) as server:
        ...  # server.port, server.probe(), server.events(), server.log(), server.terminate()

A test that fails inside the block gets the server's log to see.
"""

import json
import os
import re
import secrets
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple
from urllib.request import urlopen

from tests.servers.databases import ROOT, SITE, Database, environment, new_sqlite
from tests.support.ports import take_port
from tests.support.waiting import WAIT_SECONDS, wait_until

ASGI = "tests.servers.site.asgi:application"
WSGI = "tests.servers.site.wsgi:application"
DOORS = {"asgi": "/mcp", "view": "/view/mcp"}


class _Kind(NamedTuple):
    module: str
    bind: tuple[str, ...]
    """`{port}` is replaced by the port."""
    workers: str | None
    """The option for the number of processes; None when the server has one only."""
    more: tuple[str, ...] = ()
    application: tuple[str, ...] = (ASGI,)
    """The application; empty when the settings name it."""
    doors: tuple[str, ...] = tuple(DOORS.values())
    """Paths of the endpoint."""
    apps: tuple[str, ...] = ()
    """Apps that it needs first in INSTALLED_APPS."""


_UVICORN = _Kind("uvicorn", ("--host", "127.0.0.1", "--port", "{port}"), "--workers", ("--log-level", "warning"))
KINDS = {
    "uvicorn": _UVICORN._replace(more=(*_UVICORN.more, "--http", "httptools")),
    "uvicorn-h11": _UVICORN._replace(more=(*_UVICORN.more, "--http", "h11", "--loop", "asyncio")),
    "daphne": _Kind("daphne", ("-b", "127.0.0.1", "-p", "{port}"), None, ("-v", "0")),
    "granian": _Kind(
        "granian",
        ("--host", "127.0.0.1", "--port", "{port}"),
        "--workers",
        ("--interface", "asgi", "--log-level", "warning"),
    ),
    "hypercorn": _Kind("hypercorn", ("-b", "127.0.0.1:{port}"), "-w", ("--log-level", "warning")),
    "gunicorn": _Kind(
        "gunicorn",
        ("-b", "127.0.0.1:{port}"),
        "-w",
        ("-k", "uvicorn_worker.UvicornWorker", "--log-level", "warning"),
    ),
}
SERVERS = tuple(KINDS)
"""The ASGI servers that projects are deployed on."""
MOST_DIFFERENT = ("uvicorn", "daphne")
"""Servers that differ most: in their event loop, their flow control, and what they do to a call whose client leaves.
They are tested in depth, and the others by one contract each (`test_other_servers`).
"""
_RUNSERVER = _Kind("django", ("runserver", "127.0.0.1:{port}"), None, application=())
_VIEW_ONLY = (DOORS["view"],)
_GUNICORN = KINDS["gunicorn"]._replace(application=(WSGI,), doors=_VIEW_ONLY)
KINDS |= {
    "runserver": _RUNSERVER._replace(doors=_VIEW_ONLY),
    "runserver-daphne": _RUNSERVER._replace(apps=("daphne",)),
    "runserver-daphne-noreload": _RUNSERVER._replace(apps=("daphne",), more=("--noreload",)),
    "gunicorn-sync": _GUNICORN._replace(more=("-k", "sync", "--log-level", "warning")),
    "gunicorn-gthread": _GUNICORN._replace(more=("-k", "gthread", "--threads", "4", "--log-level", "warning")),
}


class Server:
    """A running server."""

    def __init__(self, kind: str, process: "subprocess.Popen[bytes]", port: int, directory: Path, database: Database):
        self.kind, self.process, self.port, self.database = kind, process, port, database
        self.doors = KINDS[kind].doors
        self._directory = directory
        self._complaints_before = 0

    def probe(self, *, objects: bool = False) -> dict[str, Any]:
        """Return the counts of live objects in the server, or in one of its workers: see `site.probe`."""
        query = "?objects=1" if objects else ""
        with urlopen(f"http://127.0.0.1:{self.port}/probe{query}", timeout=WAIT_SECONDS) as answer:
            found: dict[str, Any] = json.load(answer)
        return found

    def listening(self) -> int:
        """Count open channels and streams in the server, or in one of its workers. Costs it little."""
        with urlopen(f"http://127.0.0.1:{self.port}/probe?listening=1", timeout=WAIT_SECONDS) as answer:
            return int(json.load(answer)["listening"])

    def events(self, tag: str | None = None, what: str | None = None) -> list[dict[str, Any]]:
        """Read the events of handlers, in all workers and also after the end: see `site.events`."""
        file = self._directory / "events"
        # The last line may be half written.
        lines = file.read_text().rpartition("\n")[0].splitlines() if file.exists() else []
        found = map(json.loads, lines)
        return [e for e in found if tag in (None, e["tag"]) and what in (None, e["what"])]

    def event(self, tag: str, what: str) -> dict[str, Any]:
        """Wait for the first event of a kind."""
        wait_until(lambda: self.events(tag, what), lambda: f"{what} of {tag}: {self.events(tag)}")
        return self.events(tag, what)[0]

    def release(self) -> None:
        """Let calls of the tool `hold` end."""
        (self._directory / "released").touch()

    def log(self) -> str:
        """All that the server has written."""
        return (self._directory / "log").read_text(errors="replace")

    def complaints(self) -> list[str]:
        """Find warnings, errors and tracebacks in the log. That a call was refused for want of
        room is a warning that tests provoke, and so is a call that was left and read only after the DELETE of its
        session, which came on another connection, and a POST to a closed stream of HTTP+SSE.
        """
        wrong = re.compile(r"WARN|ERROR|CRITICAL|Traceback|Exception")
        provoked = re.compile(r"mcp_django\.calls: .* overloaded in |django\.request: Not Found: /view/mcp(/sse)?$")
        return [line for line in self.log().splitlines() if wrong.search(line) and not provoked.search(line)]

    def settle(self) -> None:
        """Wait until no handler and no call runs. Raises AssertionError if one does not end, or if the log has new
        complaints.
        """
        wait_until(lambda: not (found := self.probe())["running"] and not found["in_flight"], self.probe)
        complaints = self.complaints()
        complaints, self._complaints_before = complaints[self._complaints_before :], len(complaints)
        assert not complaints, complaints

    def terminate(self, sign: int = signal.SIGTERM) -> int:
        """Send a signal and wait for the end. Returns the exit status, which is negative for a signal."""
        self.process.send_signal(sign)
        return self.process.wait(WAIT_SECONDS)

    def kill(self) -> None:
        """End it and all of its workers, at once."""
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.process.wait(WAIT_SECONDS)


@contextmanager
def serve(
    kind: str,
    *,
    workers: int = 1,
    settings: Mapping[str, Any] | None = None,
    database: Database | None = None,
    environ: Mapping[str, str] | None = None,
    options: tuple[str, ...] = (),
    site: str = SITE,
) -> Iterator[Server]:
    """A server of one of `KINDS`, which answers when the block begins and is gone when it ends.

    Args:
        kind: A key of `KINDS`.
        workers: How many processes it has.
        settings: Django settings that replace those of the site; they must have a JSON form.
        database: An entry of DATABASES with the site's tables; otherwise a SQLite file of its own.
        environ: More environment variables.
        options: More options on the server's command line.
        site: The settings module; the environment's SITE_PORT is the port, for URLs of its own.
    """
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="mcp-servers-")))
        database = stack.enter_context(new_sqlite(site)) if database is None else database
        token = secrets.token_hex(8)
        env = {
            **environment(database, site),
            "SITE_SETTINGS": json.dumps(dict(settings or {})),
            "SITE_EVENTS": str(directory / "events"),
            "SITE_RELEASED": str(directory / "released"),
            "SITE_TOKEN": token,
            "SITE_OWNER": str(os.getpid()),
            "SITE_APPS": " ".join(KINDS[kind].apps),
            **(environ or {}),
        }
        port = take_port()
        server = _start(kind, port, workers, options, env, directory, database)
        stack.callback(server.kill)
        try:
            yield server
        except BaseException:
            sys.stderr.write(f"{kind} said:\n{server.log()}\n")
            raise


def _start(
    kind: str,
    port: int,
    workers: int,
    options: tuple[str, ...],
    env: dict[str, str],
    directory: Path,
    database: Database,
) -> Server:
    """Start it and wait until it answers."""
    with (directory / "log").open("wb") as log:
        process = subprocess.Popen(
            _command(kind, port, workers, options),
            cwd=ROOT,
            env={**env, "SITE_PORT": str(port)},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    server = Server(kind, process, port, directory, database)
    try:
        wait_until(lambda: process.poll() is not None or _answers(server, env["SITE_TOKEN"]), "it does not answer")
        assert process.poll() is None, "it ended"
    except AssertionError as problem:
        server.kill()
        raise AssertionError(f"{kind}: {problem}\n{server.log()}") from None
    return server


def _command(kind: str, port: int, workers: int, options: tuple[str, ...]) -> list[str]:
    how = KINDS[kind]
    command = [sys.executable, "-m", how.module, *(part.format(port=port) for part in how.bind), *how.more]
    if workers > 1:
        if how.workers is None:
            raise ValueError(f"{kind} has one process only")
        command += [how.workers, str(workers)]
    return [*command, *options, *how.application]


def _answers(server: Server, token: str) -> bool:
    """Ask whether the server that was started answers."""
    try:
        return bool(server.probe()["token"] == token)
    except (OSError, ValueError, KeyError):
        return False
