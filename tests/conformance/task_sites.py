"""The fixtures on two uvicorn workers with PostgreSQL: tasks in the serving processes, or in `mcp_worker`.

Each request of a scenario may reach either worker, so that the state of a task is in its row or is lost.
"""

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from tests.servers.databases import ROOT, environment, new_postgres
from tests.support.ports import take_port
from tests.support.waiting import WAIT_SECONDS, wait_until

SITE = "tests.conformance.settings"
BACKENDS = {
    "in process": "mcp_django.contrib.tasks.backends.in_process.InProcessBackend",
    "mcp_worker": "mcp_django.contrib.tasks.worker.WorkerBackend",
}
"""Columns of the table, and the backends of their servers."""
UVICORN = ["-m", "uvicorn", "tests.conformance.asgi:application", "--workers", "2", "--log-level", "warning"]
MCP_WORKER = ["-m", "django", "mcp_worker", "--poll", "0.05"]


@contextmanager
def task_site(name: str) -> Iterator[str]:
    """Serve the fixtures with one of `BACKENDS`; yield the URL."""
    port = take_port()
    with new_postgres(SITE) as database, ExitStack() as stack:
        environ = {**environment(database, SITE), "FIXTURES_TASK_BACKEND": BACKENDS[name]}
        server = stack.enter_context(running([*UVICORN, "--port", str(port)], environ))
        if name == "mcp_worker":
            stack.enter_context(running(MCP_WORKER, environ))
        wait_until(lambda: server.poll() is not None or answers(port), "the fixtures server did not come up")
        if server.returncode is not None:
            raise SystemExit(f"The fixtures server ended with {server.returncode}")
        yield f"http://127.0.0.1:{port}/mcp"


@contextmanager
def running(command: list[str], environ: dict[str, str]) -> Iterator[subprocess.Popen[bytes]]:
    """A process of this Python that is stopped after the block."""
    process = subprocess.Popen(
        [sys.executable, *command], cwd=ROOT, env={**os.environ, **environ}, stdin=subprocess.DEVNULL, stdout=sys.stderr
    )
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(timeout=WAIT_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def answers(port: int) -> bool:
    """Return True if a server accepts connections on a port of loopback."""
    with socket.socket() as probe:
        probe.settimeout(1)
        return probe.connect_ex(("127.0.0.1", port)) == 0
