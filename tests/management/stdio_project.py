"""A project that prints wherever it can, and a client that starts it as a process."""

import json
import os
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
WAIT_SECONDS = 240.0
"""Real seconds after which a process that did not answer or end is taken for lost: it only names a test that hangs."""
STATELESS, HANDSHAKE = "2026-07-28", "2025-11-25"
META = "io.modelcontextprotocol/"

FILES = {
    "manage.py": """
import os, sys

if __name__ == "__main__":
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "noisy_settings")
    from django.core.management import execute_from_command_line
    execute_from_command_line(sys.argv)
""",
    "noisy_settings.py": """
import json, os, subprocess
from pathlib import Path

print("settings print")
if os.environ.get("NOISY"):
    os.write(1, b"settings write\\n")
    subprocess.run(["echo", "settings child"])

HERE = Path(__file__).parent
SECRET_KEY = "for-tests-only"
USE_TZ = True
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
INSTALLED_APPS = ["django.contrib.contenttypes", "django.contrib.auth", "mcp_django", "shop"]
DATABASES = {"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": HERE / "db.sqlite3",
                         "ATOMIC_REQUESTS": True, "CONN_MAX_AGE": 60}}
PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "handlers": {"stdout": {"class": "logging.StreamHandler", "stream": "ext://sys.stdout"}},
    "loggers": {"shop": {"handlers": ["stdout"], "level": "INFO"}},
}
MCP = {"AUTH": "token", "CHANNEL_LAYER": None, "SERVERS": {
    "default": {"NAME": "shop", "LIFESPAN": "shop.mcp_tools.lifespan"},
    "closed": {"TRANSPORTS": ["http"]},
}}
globals().update(json.loads(os.environ.get("MORE_SETTINGS", "{}")))
""",
    "shop/__init__.py": "print('app print')\n",
    "shop/mcp_tools.py": """
import asyncio, contextlib, ctypes, logging, os, subprocess, sys, time
from django.db import connection, transaction
from mcp_django import Context, prompt, tool
from noisy_settings import HERE

print("tools print")
EVENTS = HERE / "events"


def note(what):
    with EVENTS.open("a") as file:
        file.write(what + "\\n")


@contextlib.asynccontextmanager
async def lifespan(server):
    print("lifespan print")
    note("entered")
    yield
    note("left")


def no_lifespan(server):
    raise ValueError("no pool")


@tool(atomic=False)
def noise() -> str:
    print("tool print", flush=True)
    sys.stdout.write("tool stdout\\n")
    os.write(1, b"tool write\\n")
    libc = ctypes.CDLL(None)
    libc.puts(b"tool C")
    libc.fflush(None)
    subprocess.run(["echo", "tool child"])
    logging.getLogger("shop").info("tool log")
    assert sys.stdin.read() == ""
    return "quiet"


@tool
def whoami(ctx: Context) -> dict[str, str]:
    # In the transaction that ATOMIC_REQUESTS asks for.
    return {"user": str(ctx.user), "atomic": str(connection.in_atomic_block), "key": ctx.principal.key,
            "environment": " ".join(name for name in os.environ if name.startswith("MCP_")),
            "token": str("mcp_" in str(dict(os.environ)))}


@prompt
def summarize(topic: str) -> str:
    return f"Summarize {topic}."


@tool(permission="auth.add_user", scopes=["users:write"])
def add_user() -> str:
    return "added"


@tool(atomic=False)
async def wait(seconds: float) -> str:
    note("waiting")
    try:
        await asyncio.sleep(seconds)
    except asyncio.CancelledError:
        note("cancelled")
        raise
    return "waited"


@tool(atomic=False)
def hold(seconds: float) -> str:
    note("holding")
    time.sleep(seconds)
    return "held"


@tool(atomic=False)
def sql(rows: int) -> str:
    note("querying")
    try:
        with connection.cursor() as cursor:
            cursor.execute("WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < %s) "
                           "SELECT count(*) FROM n", [rows])
            return str(cursor.fetchone()[0])
    except BaseException as problem:
        note(f"interrupted {type(problem).__name__}")
        raise
""",
}


class Project:
    """A project in a directory of its own."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        for name, text in FILES.items():
            path = directory / name
            path.parent.mkdir(exist_ok=True)
            path.write_text(text.lstrip("\n"))

    def manage(self, *arguments: str) -> str:
        """Run a command of the project's manage.py. Return its stdout."""
        ran = subprocess.run(
            [sys.executable, "manage.py", *arguments],
            cwd=self.directory,
            env=self.environment(),
            capture_output=True,
            text=True,
            timeout=WAIT_SECONDS,
            check=True,
        )
        return ran.stdout

    def environment(self, **more: str) -> dict[str, str]:
        """Return this process's environment without the settings of the tests and of Python."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("DJANGO_", "MCP_", "PYT"))}
        return {**kept, "PYTHONPATH": str(ROOT), **more}

    def events(self) -> list[str]:
        """Return the notes of tools and the lifespan."""
        path = self.directory / "events"
        return path.read_text().split("\n")[:-1] if path.exists() else []

    @contextmanager
    def client(
        self, *options: str, module: bool = False, manage: str = "manage.py", **environment: str
    ) -> Iterator["Client"]:
        """Start the server, and kill it at the end if it still runs."""
        start = ["-m", "mcp_django", "--settings", "noisy_settings"] if module else [manage, "mcp_stdio"]
        process = subprocess.Popen(
            [sys.executable, *start, *options],
            cwd=self.directory,
            env=self.environment(**environment),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        client = Client(process)
        try:
            yield client
        finally:
            process.kill()
            client.end()


class Client:
    """A server process, and the lines that it writes."""

    def __init__(self, process: "subprocess.Popen[bytes]") -> None:
        self.process = process
        self.errors = b""
        self._lines: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._threads = [threading.Thread(target=read) for read in (self._read, self._collect)]
        for thread in self._threads:
            thread.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._lines.put(line)
        self._lines.put(None)

    def _collect(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.errors += line

    def send(self, message: Any) -> None:
        """Write one line."""
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(message).encode() + b"\n")
        self.process.stdin.flush()

    def request(self, id: int, method: str, **params: Any) -> None:
        """Send a request of the stateless era."""
        meta = {META + "protocolVersion": STATELESS, META + "clientCapabilities": {}}
        self.send({"jsonrpc": "2.0", "id": id, "method": method, "params": {**params, "_meta": meta}})

    def call(self, tool: str, **arguments: Any) -> Any:
        """Call a tool, and return its result or its error."""
        self.request(1, "tools/call", name=tool, arguments=arguments)
        answer = self.receive()
        return answer["result"] if "result" in answer else answer["error"]

    def initialize(self) -> None:
        """Open a session."""
        info = {"name": "tests", "version": "1"}
        params = {"protocolVersion": HANDSHAKE, "capabilities": {}, "clientInfo": info}
        self.send({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params})
        assert self.receive()["result"]["protocolVersion"] == HANDSHAKE
        self.send({"jsonrpc": "2.0", "method": "notifications/initialized"})

    def receive(self) -> dict[str, Any]:
        """Read the next line, which is a message."""
        line = self._lines.get(timeout=WAIT_SECONDS)
        assert line is not None, self.errors.decode()
        return dict(json.loads(line))

    def close(self) -> None:
        """Close the standard input of the server."""
        assert self.process.stdin is not None
        self.process.stdin.close()

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the server."""
        self.process.send_signal(number)

    def end(self) -> tuple[int, list[dict[str, Any]]]:
        """Wait for the end of the process, and return its exit code and the messages that were not read."""
        code = self.process.wait(WAIT_SECONDS)
        for thread in self._threads:
            thread.join(WAIT_SECONDS)
        for stream in (self.process.stdin, self.process.stdout, self.process.stderr):
            assert stream is not None
            try:
                stream.close()
            except BrokenPipeError:
                pass
        rest = []
        while not self._lines.empty():
            line = self._lines.get()
            if line is not None:
                rest.append(json.loads(line))
        return code, rest
