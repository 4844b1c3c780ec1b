"""The view under a real WSGI server with threads: calls side by side, and nothing left behind."""

import http.client
import json
import os
import subprocess
import sys
import tempfile
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.conformance.__main__ import listens
from tests.interaction.clients import HANDSHAKE, STATELESS, Client
from tests.interaction.transports import Transport
from tests.support.ports import take_port
from tests.support.waiting import WAIT_SECONDS, wait_until

pytestmark = pytest.mark.integration

THREADS = 8
PATH = "/view/mcp"


@pytest.fixture(scope="module")
def server():
    """The port of gunicorn with one worker and several threads."""
    port = take_port()
    with tempfile.TemporaryDirectory(prefix="mcp-gthread-") as directory:
        database = str(Path(directory) / "fixtures.sqlite3")
        environment = {**os.environ, "FIXTURES_DATABASE": database, "FIXTURES_THREADS": str(THREADS)}
        options = ["--bind", f"127.0.0.1:{port}", "--threads", str(THREADS), "--worker-class", "gthread"]
        application = "tests.servers.gthread:application"
        command = [sys.executable, "-m", "gunicorn", *options, "--log-level", "warning", application]
        with subprocess.Popen(command, env=environment) as process:
            try:
                wait_until(lambda: process.poll() is not None or listens(port), "the server did not start")
                assert process.poll() is None, "the server ended"
                yield port
            finally:
                process.terminate()
                process.wait(WAIT_SECONDS)


class BlockingClient:
    """A client that blocks; each of its requests has a connection of its own."""

    def __init__(self, port, revision):
        self.port, self.speaker = port, Client(Transport(None, "/view"), revision, token=None)

    def send(self, message, **headers):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=WAIT_SECONDS)
        try:
            sent = {**self.speaker.headers(message), "host": f"127.0.0.1:{self.port}", **headers}
            connection.request("POST", PATH, json.dumps(message), sent)
            response = connection.getresponse()
            body = response.read()
        finally:
            connection.close()
        return response, json.loads(body) if body else None

    def call(self, name, id=None):
        _, found = self.send(self.speaker.request_message("tools/call", {"name": name, "arguments": {}}, id=id))
        return None if found is None else found["result"]["structuredContent"]

    def open(self):
        message = {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": self.speaker.introduction()}
        response, found = self.send(message)
        self.speaker.session = response.headers["mcp-session-id"]
        self.send({"jsonrpc": "2.0", "method": "notifications/initialized"})
        self.hello = found["result"]
        return self


@pytest.mark.parametrize("revision", [HANDSHAKE[-1], STATELESS], ids=["handshake", "stateless"])
def test_many_requests_leak_nothing(server, revision):
    peer = BlockingClient(server, revision)
    if revision != STATELESS:
        peer.open()
    names = ["rows", "rows_in_a_thread"]
    with ThreadPoolExecutor(THREADS) as pool:
        assert None not in pool.map(peer.call, ["rows_in_all_threads"] * THREADS)
        list(pool.map(peer.call, names))
        before = peer.call("census")
        answers = list(pool.map(peer.call, names * 100))
    assert len([answer for answer in answers if answer is not None]) == 200

    def is_settled():
        after = peer.call("census")
        return all(after[name] <= before[name] for name in before)

    wait_until(is_settled, lambda: (before, peer.call("census")))


def test_a_plain_function_runs_in_the_thread_of_the_request(server):
    with ThreadPoolExecutor(THREADS) as pool:
        calls = pool.map(BlockingClient(server, STATELESS).call, ["rows_in_a_thread"] * 40)
        threads = Counter(found["result"][1] for found in calls)
    assert len(threads) <= THREADS
    assert all(name.startswith("ThreadPoolExecutor") for name in threads)


def test_a_timeout_interrupts_the_sql_of_a_plain_function(server):
    peer = BlockingClient(server, STATELESS)
    message = peer.speaker.request_message("tools/call", {"name": "long_statement", "arguments": {}})
    _, answer = peer.send(message)
    assert answer["result"]["isError"]
    assert "0.5" in answer["result"]["content"][0]["text"]
    assert all(call is not None for call in [peer.call("rows_in_a_thread") for _ in range(THREADS)])


def test_a_call_is_cancelled_from_another_thread(server):
    peer = BlockingClient(server, HANDSHAKE[-1]).open()
    with ThreadPoolExecutor(2) as pool:
        call = pool.submit(peer.call, "dwell", 99)
        while peer.call("running")["result"] < 2:
            assert not call.done()
        response, _ = peer.send({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 99}})
        assert response.status == 202
        assert call.result(WAIT_SECONDS) is None


def test_the_end_of_a_session_ends_its_calls_in_other_threads(server):
    peer = BlockingClient(server, HANDSHAKE[-1]).open()
    with ThreadPoolExecutor(2) as pool:
        call = pool.submit(peer.call, "dwell", 99)
        while peer.call("running")["result"] < 2:
            assert not call.done()
        connection = http.client.HTTPConnection("127.0.0.1", server, timeout=WAIT_SECONDS)
        headers = {"host": f"127.0.0.1:{server}", "mcp-session-id": peer.speaker.session}
        connection.request("DELETE", PATH, headers=headers)
        assert connection.getresponse().status == 204
        connection.close()
        assert call.result(WAIT_SECONDS) is None


def test_one_session_may_be_used_from_many_threads(server):
    peer = BlockingClient(server, HANDSHAKE[-1]).open()
    ready = threading.Barrier(THREADS)

    def work(number):
        ready.wait(WAIT_SECONDS)
        return peer.call("rows", number)

    with ThreadPoolExecutor(THREADS) as pool:
        assert all(answer is not None for answer in pool.map(work, range(1, THREADS + 1)))


def test_capabilities_that_need_streams_are_not_declared(server):
    assert "logging" not in BlockingClient(server, HANDSHAKE[-1]).open().hello["capabilities"]
