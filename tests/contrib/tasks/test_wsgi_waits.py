"""Tasks where each request holds a thread, and no stream exists: questions fail, and few requests wait (WSGI)."""

import asyncio
import http.client
import itertools
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import pytest

from mcp_django import wiring
from mcp_django.contrib.tasks.models import Task
from mcp_django.runtime.concurrency import WaitLimiter, refuse_wait
from mcp_django.server.ports import Overloaded
from tests.contrib.tasks.clients import TaskClient
from tests.contrib.tasks.conftest import ALIAS, Gate
from tests.contrib.tasks.test_core_tasks import CoreClient
from tests.contrib.tasks.test_task_processes import SITE
from tests.server.client import accept
from tests.servers.databases import ROOT, environment, new_postgres
from tests.support.clock import Clock
from tests.support.ports import take_port
from tests.support.waiting import WAIT_SECONDS, eventually, wait_until

WITHOUT_STREAM = {"supports_streaming": False}
WORKER_BACKEND = "mcp_django.contrib.tasks.worker.WorkerBackend"
NO_WAITS = {**WITHOUT_STREAM, "claim_wait": refuse_wait}


@pytest.mark.django_db
async def test_a_question_of_a_core_task_fails_as_in_a_plain_call(gate: Gate) -> None:
    client = CoreClient(connection_options=WITHOUT_STREAM)
    client.answer = lambda method, params: accept(value=True)
    id = (await client.start("confirm", name="a"))["taskId"]
    task = await client.until(id)
    assert task["status"] == "failed"
    assert "can send only responses" in task["statusMessage"]
    assert (await client.result(id))["content"][0]["text"] == task["statusMessage"]


@pytest.mark.django_db
async def test_clients_without_tasks_get_the_failure_too(gate: Gate, change: Callable[..., None]) -> None:
    change(TOOLS=True, GRACE=0)
    client = TaskClient(wiring.get_server(ALIAS), version="2025-11-25", connection_options=WITHOUT_STREAM)
    assert client.session is not None
    client.session.pk = 7
    await client.call("confirm", name="a")
    task = await Task.objects.aget()
    while not await Task.objects.filter(pk=task.pk, status="completed", is_error=True).aexists():
        await asyncio.sleep(0)


@pytest.mark.django_db
async def test_clients_of_rounds_are_asked_without_a_stream(gate: Gate, client: TaskClient) -> None:
    client.connection_options = NO_WAITS
    id = (await client.start("confirm", name="a"))["taskId"]
    assert (await client.until(id, "input_required"))["inputRequests"]


@pytest.mark.django_db
async def test_over_the_limit_the_result_is_not_waited_for(gate: Gate) -> None:
    client = CoreClient(connection_options=NO_WAITS)
    id = (await client.start("wait", label="ready"))["taskId"]
    with pytest.raises(Overloaded, match="Poll tasks/get") as refused:
        await client.result(id)
    assert (refused.value.status, refused.value.retry_after) == (429, 1)
    gate.open()
    await client.until(id)
    assert (await client.result(id))["content"][0]["text"] == "ready"


@pytest.mark.django_db
@pytest.mark.parametrize("options", [{}, {"BACKEND": WORKER_BACKEND, "BACKEND_OPTIONS": {}}])
async def test_over_the_limit_a_call_becomes_a_task_at_once(
    gate: Gate, client: TaskClient, change: Callable[..., None], clock: Clock, options: dict[str, Any]
) -> None:
    """The clock does not move, so the grace of the tool does not end."""
    change(**options)
    client.connection_options = NO_WAITS
    starting = asyncio.ensure_future(client.start("slow"))
    await eventually(starting.done)
    id = (await starting)["taskId"]
    assert (await client.get(id))["status"] == "working"
    gate.open()
    await client.cancel(id)


def test_waits_are_counted_in_all_and_for_each_principal() -> None:
    limiter = WaitLimiter(3, 2)
    with limiter.claim("ada") as first, limiter.claim("ada") as second, limiter.claim("ada") as third:
        assert (first, second, third) == (True, True, False)
        with limiter.claim("bob") as fourth, limiter.claim("eve") as fifth:
            assert (fourth, fifth) == (True, False)
    assert len(limiter) == 0
    with limiter.claim("ada") as again, limiter.claim("ada") as and_again:
        assert (again, and_again) == (True, True)
    with limiter.claim("local") as one, limiter.claim("local") as two, limiter.claim("local") as three:
        assert (one, two, three) == (True, True, True)


# gunicorn with twelve threads, and thirteen clients

THREADS = 12


class BlockingClient:
    """A client of 2025-11-25, with a connection for each request."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.session = ""
        self.ids = itertools.count(1)
        params = {
            "protocolVersion": "2025-11-25",
            "capabilities": {},
            "clientInfo": {"name": "patient", "version": "1"},
        }
        self.session = self.send("initialize", params)[1]["mcp-session-id"]

    def send(self, method: str, params: dict[str, Any]) -> tuple[int, Any, dict[str, Any]]:
        """Return the status, the headers and the body of the answer."""
        headers = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
        if self.session:
            headers |= {"Mcp-Session-Id": self.session, "MCP-Protocol-Version": "2025-11-25"}
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=WAIT_SECONDS)
        try:
            message = {"jsonrpc": "2.0", "id": next(self.ids), "method": method, "params": params}
            connection.request("POST", "/mcp", json.dumps(message), headers)
            response = connection.getresponse()
            return response.status, response.headers, json.loads(response.read())
        finally:
            connection.close()

    def start(self) -> str:
        params = {"name": "sleep_in_sql", "arguments": {}, "task": {}}
        return str(self.send("tools/call", params)[2]["result"]["task"]["taskId"])


@contextmanager
def gunicorn(*options: str) -> Iterator[int]:
    port = take_port()
    application = "django.core.wsgi:get_wsgi_application()"
    command = [sys.executable, "-m", "gunicorn", "--bind", f"127.0.0.1:{port}", *options, application]
    with new_postgres(SITE) as database:
        process = subprocess.Popen(command, cwd=ROOT, env=environment(database, SITE), stderr=subprocess.DEVNULL)
        try:
            wait_until(lambda: process.poll() is not None or is_open(port), "the server did not start")
            yield port
        finally:
            process.kill()
            process.wait(WAIT_SECONDS)


def is_open(port: int) -> bool:
    try:
        BlockingClient(port)
    except OSError:
        return False
    return True


@pytest.mark.integration
@pytest.mark.postgres
def test_twelve_waiting_clients_do_not_block_a_thirteenth() -> None:
    with (
        gunicorn("--worker-class", "gthread", "--threads", str(THREADS)) as port,
        ThreadPoolExecutor(THREADS) as pool,
    ):
        clients = [BlockingClient(port) for _ in range(THREADS)]
        ids = [client.start() for client in clients]
        waiting = [
            pool.submit(client.send, "tasks/result", {"taskId": id}) for client, id in zip(clients, ids, strict=True)
        ]
        wait_until(lambda: sum(each.done() for each in waiting) >= THREADS - 4, "the waits were not refused")
        late = BlockingClient(port)
        assert late.send("ping", {})[0] == 200
        refused = [each.result() for each in waiting if each.done()]
        assert [answer for answer in refused if answer[0] != 429] == []
        assert all("Poll tasks/get" in body["error"]["message"] for _, _, body in refused)
        for client, id in zip(clients, ids, strict=True):
            assert client.send("tasks/cancel", {"taskId": id})[0] == 200
        assert sum(each.result()[0] == 200 for each in waiting) == 4


@pytest.mark.integration
@pytest.mark.postgres
def test_a_process_without_threads_never_waits() -> None:
    with gunicorn("--worker-class", "sync") as port:
        client = BlockingClient(port)
        assert client.send("tasks/result", {"taskId": client.start()})[0] == 429
