"""Requests about tasks run no tool, so they are not counted among the running calls."""

from typing import Any

import pytest

from mcp_django.runtime.calls.call_limiter import CallLimiter
from mcp_django.server.calls.call import Connection
from mcp_django.server.calls.message_queue import Outbox
from mcp_django.server.calls.pending import PendingResponse
from mcp_django.server.ports import Overloaded
from tests.contrib.tasks.clients import TaskClient
from tests.contrib.tasks.conftest import Gate
from tests.contrib.tasks.test_core_tasks import CoreClient

META = "io.modelcontextprotocol/"


def build_work(client: TaskClient, id: int, method: str, **params: Any) -> PendingResponse:
    """Build the work of a request, which the test closes."""
    pipeline = client.pipeline
    if client.session is None:
        params["_meta"] = {
            META + "protocolVersion": client.version,
            META + "clientCapabilities": client.capabilities,
        }
    era = pipeline.stateless if client.session is None else pipeline.handshake
    message = {"jsonrpc": "2.0", "id": id, "method": method, "params": params}
    work = pipeline.handle(era, message, Connection(client.principal, session=client.session), Outbox())
    assert isinstance(work, PendingResponse)
    return work


@pytest.mark.django_db
async def test_polls_are_not_counted_among_the_running_calls(gate: Gate, subtests: pytest.Subtests) -> None:
    core = CoreClient()
    modern = TaskClient(core.server)
    for client, methods in (
        (modern, ("tasks/get", "tasks/update", "tasks/cancel")),
        (core, ("tasks/get", "tasks/cancel", "tasks/list", "tasks/result")),
    ):
        limiter = CallLimiter(1, 1000)
        running, _ = limiter.admit(build_work(client, 0, "tools/call", name="greet"), 10, "owner", ())
        for id, method in enumerate(methods, 1):
            with subtests.test(version=client.version, method=method):
                work = build_work(client, id, method, taskId="1", inputResponses={})
                admitted, counter = limiter.admit(work, 10, "owner", ())
                assert admitted is work, "it does not wait"
                admitted.close()
                counter.release("owner")
        running.close()


@pytest.mark.django_db
async def test_waits_for_results_delay_neither_polls_nor_calls_and_wait_in_their_own_queue(gate: Gate) -> None:
    core, limiter = CoreClient(), CallLimiter(1, 1000)
    first = build_work(core, 1, "tasks/result", taskId="1")
    assert limiter.admit(first, 10, "owner", ())[0] is first
    second = build_work(core, 2, "tasks/result", taskId="2")
    waiting, counter = limiter.admit(second, 10, "owner", ())
    assert waiting is not second
    for id, (method, params) in enumerate([("tasks/get", {"taskId": "1"}), ("tools/call", {"name": "greet"})], 3):
        work = build_work(core, id, method, **params)
        assert limiter.admit(work, 10, "owner", ())[0] is work
        work.close()
    counter.release("owner")
    waiting.close()
    first.close()


@pytest.mark.django_db
async def test_polls_have_a_limit_of_their_own(gate: Gate) -> None:
    client = TaskClient(CoreClient().server)
    limiter = CallLimiter(1, 1000)
    work, _ = limiter.admit(build_work(client, 1, "tasks/get", taskId="1"), 10, "owner", ())
    with pytest.raises(Overloaded, match="More than 1 such requests") as refused:
        limiter.admit(build_work(client, 2, "tasks/get", taskId="1"), 10, "owner", ())
    assert refused.value.status == 429
    work.close()
