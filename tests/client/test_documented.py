"""The blocks of docs/use-servers/client.md, run one after another against a server in memory."""

import ast
import inspect
from types import CodeType
from typing import Any

import pytest

from mcp_django.client import Client
from mcp_django.client import client as module
from mcp_django.client.blocking import BlockingClient
from tests.client.script import Script
from tests.repository.pages import ROOT, python_blocks

BLOCKS = python_blocks(ROOT / "docs" / "use-servers" / "client.md")
SERVER = {
    "tools_list": {"tools": [{"name": "add", "inputSchema": {"type": "object"}}]},
    "tools_call": {"content": [{"type": "text", "text": "3"}], "structuredContent": {"result": 3}},
}


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> Script:
    """Provide the server to which every client of the page connects."""
    script = Script(**SERVER)
    made = module.Client.__init__
    monkeypatch.setattr(module.Client, "__init__", lambda self, target, **options: made(self, script, **options))
    return script


async def run_block(block: str, **names: Any) -> dict[str, Any]:
    """Run a block that may await."""
    namespace = {"__name__": "example", **names}
    compiled: CodeType = compile(block, "client.md", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    result = eval(compiled, namespace)
    if inspect.isawaitable(result):
        await result
    return namespace


async def test_the_examples_of_the_page_run(script: Script) -> None:
    used, failures, said, asked, blocking = BLOCKS
    namespace = await run_block(used)
    assert namespace["result"].structured_content == {"result": 3}
    async with Client(script) as client:  # type: ignore[arg-type]
        assert (await run_block(failures, client=client))["result"].is_error is False
        await run_block(said, client=client)
    configured = (await run_block(asked, Client=Client, StreamableHTTP=namespace["StreamableHTTP"]))["client"]
    await configured.connect()
    assert set(script.received[-2][1]["capabilities"]) == {"elicitation", "roots"}
    await configured.close()
    assert "blocking()" in blocking


def test_the_block_without_an_event_loop_runs(script: Script) -> None:
    namespace: dict[str, Any] = {}
    exec("from mcp_django.client import Client, StreamableHTTP\n" + BLOCKS[-1], namespace)
    assert isinstance(namespace["client"], BlockingClient)
    assert script.methods() == ["tools/call"]


def test_the_page_names_all_operations() -> None:
    page = (ROOT / "docs" / "use-servers" / "client.md").read_text()
    missing = [name for name in vars(BlockingClient) if not name.startswith("_") and name not in page]
    assert set(missing) <= {"alias", "is_connected", "is_needed", "last_error", "disconnect"}
