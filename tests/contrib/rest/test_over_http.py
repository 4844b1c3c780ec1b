"""One call from a client of HTTP, through the endpoint of the same project."""

from typing import Any

import pytest
from django.test import Client

from mcp_django.contrib.rest import expose
from mcp_django.wiring import get_server
from tests.library import views

META = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientCapabilities": {},
}


@pytest.fixture
def tool() -> Any:
    registry = get_server().registry
    expose(views.rate, server=get_server(), actions="__all__", prefix="door_")
    yield "door_post"
    for name in ("door_get", "door_post"):
        registry.tools.remove(name)


@pytest.mark.django_db
@pytest.mark.urls("tests.library.urls")
def test_a_client_calls_a_view(tool: str) -> None:
    params = {"name": tool, "arguments": {"word": "love", "body": {"stars": 4}}, "_meta": META}
    answer = Client(SERVER_NAME="localhost").post(
        "/mcp",
        {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params},
        content_type="application/json",
        headers={
            "Host": "localhost",
            "Accept": "application/json, text/event-stream",
            "MCP-Protocol-Version": "2026-07-28",
            "Mcp-Method": "tools/call",
            "Mcp-Name": tool,
        },
    )
    result = answer.json()["result"]
    assert result["structuredContent"] == {"word": "love", "stars": 4}
    assert result["_meta"]["mcp-django/status"] == 201
