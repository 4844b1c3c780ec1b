"""The harness itself: every kind of server comes up, serves both doors in both eras, and is gone afterwards."""

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.servers.client import HANDSHAKE, STATELESS, Client
from tests.servers.databases import ROOT
from tests.servers.harness import Server, serve, until


@pytest.mark.parametrize("revision", [HANDSHAKE, STATELESS])
def test_a_call_is_answered(server: Server, path: str, revision: str) -> None:
    with Client(server.port, path, revision) as client:
        assert client.call("fast", {"number": 7}).answer().value == 7
        assert client.call("echo_sql", {"number": 8}).answer().value == 8
        said = client.call("tick", {"tag": f"tick{path}{revision}", "times": 3}).answer()
    assert [message.get("method") for message in said.messages] == ["notifications/progress"] * 3 + [None]


def test_several_workers_share_the_events_and_end_together() -> None:
    with serve("uvicorn", workers=2) as server:
        with Client(server.port, "/mcp", STATELESS) as client:
            for number in range(4):
                client.call("wait", {"tag": f"call-{number}", "seconds": 0}).answer()
        assert {event["tag"] for event in server.events(what="ended")} == {f"call-{number}" for number in range(4)}
        assert server.probe()["pid"] != server.process.pid
    until(lambda: not listens(server.port))


SERVING = """
from tests.servers.databases import ROOT
from tests.servers.harness import serve
with serve("gunicorn") as server:
    print(server.port, flush=True)
    input()
"""


def test_servers_end_with_a_test_run_that_was_killed(tmp_path: Path) -> None:
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
    until(lambda: not listens(port))


def listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0
