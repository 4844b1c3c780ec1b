"""Under WSGI each request has a loop of its own, and so a lifespan of its own, over before the answer is out."""

import contextlib
import json
from collections.abc import AsyncIterator
from typing import Any

from asgiref.sync import sync_to_async
from django.test import Client, override_settings

from mcp_django.wiring import get_server

log: list[str] = []
META = "io.modelcontextprotocol/"
CALL = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "tools/call",
    "params": {
        "name": "add",
        "arguments": {"a": 1, "b": 2},
        "_meta": {f"{META}protocolVersion": "2026-07-28", f"{META}clientCapabilities": {}},
    },
}
HEADERS = {"host": "127.0.0.1", "mcp-protocol-version": "2026-07-28", "mcp-method": "tools/call", "mcp-name": "add"}


@contextlib.asynccontextmanager
async def noted(server: Any) -> AsyncIterator[None]:
    """Note when it is entered and left, from a thread, as code that uses the ORM would."""
    await sync_to_async(log.append)("in")
    yield
    await sync_to_async(log.append)("out")


@override_settings(MCP={"AUTH": "none", "SERVERS": {"default": {"LIFESPAN": f"{__name__}.noted"}}})
def test_each_request_enters_and_exits_the_lifespan() -> None:
    log.clear()
    for count in (1, 2, 3):
        answer = Client().post("/mcp", json.dumps(CALL), content_type="application/json", headers=HEADERS)
        assert answer.json()["result"]["structuredContent"] == {"result": 3}
        assert log == ["in", "out"] * count
    assert not get_server().lifespan._entries
