"""The harness itself: workers share one event log, and no server outlives its test run."""

import os
import socket
import subprocess
import sys
from pathlib import Path

from tests.servers.client import STATELESS, Client
from tests.servers.databases import ROOT
from tests.servers.harness import serve
from tests.support.waiting import wait_until


def test_workers_share_one_event_file_and_end_together() -> None:
    with serve("uvicorn", workers=2) as server:
        with Client(server.port, "/mcp", STATELESS) as client:
            for number in range(4):
                client.call("wait", {"tag": f"call-{number}", "seconds": 0}).answer()
        assert {event["tag"] for event in server.events(what="ended")} == {f"call-{number}" for number in range(4)}
        assert server.probe()["pid"] != server.process.pid
    wait_until(lambda: not listens(server.port))


SERVING = """
from tests.servers.databases import ROOT
from tests.servers.harness import serve
with serve("gunicorn") as server:
    print(server.port, flush=True)
    input()
"""


def test_servers_end_with_a_killed_test_run(tmp_path: Path) -> None:
    run = subprocess.Popen(
        [sys.executable, "-c", SERVING],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT), "TMPDIR": str(tmp_path)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with run:
        assert run.stdout is not None
        port = int(run.stdout.readline())
        assert listens(port)
        run.kill()
    wait_until(lambda: not listens(port))


def listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0
