"""Calls: the requests that are sent, and their results."""

from typing import Any

from mcp_django.server.primitives.registry import get_registry
from mcp_django.server.primitives.toolset import register
from tests.contrib.openapi.pets import Api, document, operation, parameter, peer, tools, toolset

ONE = document({"/pets/{id}": {"get": operation(operationId="getPet", parameters=[parameter("id", "path")])}})


async def test_an_operation_is_a_tool() -> None:
    api = Api()
    result = await peer(ONE, api, prefix="pets").request(
        "tools/call", {"name": "pets_getPet", "arguments": {"id": "7"}}
    )
    assert result["structuredContent"] == {"id": 1, "name": "Rex"}
    assert (api.last.method, str(api.last.url)) == ("GET", "https://api.example.com/v1/pets/7")


async def test_a_schema_that_refers_to_itself_is_a_definition() -> None:
    listed = (await tools(ONE))["getPet"]["outputSchema"]
    assert listed["$defs"]["Pet"]["properties"]["mother"] == {"$ref": "#/$defs/Pet"}
    assert "secret" not in listed["$defs"]["Pet"]["properties"]


def test_an_instance_can_be_registered(monkeypatch: Any) -> None:
    monkeypatch.setattr("mcp_django.server.primitives.registry.REGISTRIES", {})
    made = toolset(ONE)
    assert register(made) is made
    assert [tool.name for tool in get_registry("default").tools] == ["getPet"]
