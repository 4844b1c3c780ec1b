"""The blocks of docs/use-servers/tasks.md, run against a server whose calls are tasks."""

from typing import Any

import pytest
from django.http import JsonResponse
from django.test import RequestFactory

from mcp_django.client import Client
from mcp_django.client.tasks.task_handle import BlockingClientTask, ClientTask
from tests.client.task_server import COMPLETED, WORKING, TaskServer
from tests.client.test_documented import run_block
from tests.repository.pages import ROOT, python_blocks
from tests.support.clock import Clock

PAGE = ROOT / "docs" / "use-servers" / "tasks.md"
BLOCKS = python_blocks(PAGE)


async def test_the_examples_of_the_page_run(clock: Clock) -> None:
    server = TaskServer("stateless", {"statusMessage": "half"}, COMPLETED)
    shown: list[Any] = []
    async with Client(server.script) as client:
        names = {"client": client, "show": lambda *step: shown.append(step)}
        assert (await clock.advance_while(run_block(BLOCKS[0], **names)))["result"].is_error is False
        stored_id = (await run_block(BLOCKS[1], **names))["stored_id"]
        result = await clock.advance_while(run_block(BLOCKS[2], **names, stored_id=stored_id))
        assert result["result"].is_error is False
    assert shown == [(1.0, None, "half")]


def test_the_views_of_the_page_answer() -> None:
    server = TaskServer("stateless", WORKING)
    client = Client(server.script)
    names: dict[str, Any] = {"JsonResponse": JsonResponse, "get_client": lambda alias, user: client}
    exec(BLOCKS[3], names)
    request = RequestFactory().get("/")
    request.user = None
    with client.blocking():
        assert names["start"](request).content == b'{"task": "t1", "status": "working"}'
        assert names["check"](request, "t1").content == b'{"status": "working"}'


@pytest.mark.parametrize("kind", [ClientTask, BlockingClientTask])
def test_the_page_names_all_members_of_a_handle(kind: type) -> None:
    page = PAGE.read_text()
    public = [name for name in vars(kind) if not name.startswith("_")]
    assert [name for name in public if f"`{name}" not in page] == []
