"""Generic tools of a document: four tools find, describe and run all operations."""

from typing import Any

import pytest

from mcp_django.contrib.openapi import OpenAPIToolset, Route
from mcp_django.contrib.openapi.toolset import check_deferred_operations
from mcp_django.models import ToolPolicy
from mcp_django.protocol.errors import InsufficientScope
from mcp_django.schema import DeclarationError
from mcp_django.server.calls.call import Call
from tests.contrib.openapi.pets import Api, document, operation, parameter, toolset
from tests.server.client import PipelineClient, make_principal, make_server

ID = parameter("id", "path")
BODY = {
    "required": True,
    "content": {"application/json": {"schema": {"type": "object", "properties": {"name[de]": {"type": "string"}}}}},
}
PETS = document(
    {
        "/pets": {
            "get": operation(operationId="listPets", summary="List all pets", tags=["pet"]),
            "post": operation(operationId="addPet", summary="Sell a pet", requestBody=BODY),
        },
        "/pets/{id}": {
            "get": operation(operationId="getPet", parameters=[ID], description="One pet.\nWith its mother."),
            "delete": operation(operationId="removePet", parameters=[ID]),
        },
        "/owners": {"get": operation(operationId="listOwners", summary="Owners of a pet")},
    }
)
ROUTES = [Route("POST *", permission="shop.add_pet"), Route("DELETE *", scopes=["pets:delete"])]


def client(*permissions: str, api: Api | None = None, scopes: Any = (), **options: Any) -> PipelineClient:
    made = toolset(PETS, api, prefix="pets", style="generic", **{"routes": ROUTES, **options})
    return PipelineClient(make_server(toolsets=[made]), principal=make_principal(*permissions, scopes=scopes))


async def found(peer: PipelineClient, query: str = "", **arguments: Any) -> list[str]:
    result = (await peer.call("pets_search", query=query, **arguments))["structuredContent"]
    return [operation["name"] for operation in result["operations"]]


async def describe(peer: PipelineClient, operation: str, tool: str = "pets_describe") -> dict[str, Any]:
    described: dict[str, Any] = (await peer.call(tool, operation=operation))["structuredContent"]
    return described


async def test_a_document_has_four_tools_whose_annotations_separate_reading_from_writing() -> None:
    listed = (await client().request("tools/list", {}))["tools"]
    hints = {tool["name"]: tool["annotations"] for tool in listed}
    assert list(hints) == ["pets_call", "pets_describe", "pets_read", "pets_search"]
    assert hints["pets_read"] == {"readOnlyHint": True, "openWorldHint": True}
    assert hints["pets_search"] == {"readOnlyHint": True, "openWorldHint": False}
    assert hints["pets_call"]["readOnlyHint"] is False
    assert hints["pets_call"]["destructiveHint"] is True


async def test_without_a_prefix_they_are_called_api() -> None:
    server = make_server(toolsets=[toolset(PETS, style="generic")])
    assert await PipelineClient(server).names() == ["api_call", "api_describe", "api_read", "api_search"]
    described = await describe(PipelineClient(server), "getPet", "api_describe")
    assert described["tool"] == "api_read"


async def test_the_words_of_a_name_count_more_than_those_of_a_description() -> None:
    peer = client("shop.add_pet")
    assert await found(peer, "list pets") == [
        *("pets_listPets", "pets_listOwners", "pets_getPet", "pets_addPet", "pets_removePet")
    ]
    assert (await found(peer, "owner"))[0] == "pets_listOwners"
    assert (await found(peer, "delete a pet"))[0] == "pets_removePet"
    assert await found(peer, "spaceship") == []
    assert await found(peer, limit=2, offset=1) == ["pets_getPet", "pets_listOwners"]


async def test_an_operation_is_described_with_its_arguments_and_result() -> None:
    described = await describe(client("shop.add_pet"), "pets_addPet")
    assert described["request"] == "POST /pets"
    assert described["tool"] == "pets_call"
    assert described["arguments"]["properties"] == {
        "name_de": {"type": "string", "description": 'Named "name[de]" in the API.'}
    }
    assert described["result"]["$defs"]["Pet"]["properties"]["name"] == {"type": "string"}


async def test_operations_are_run_by_the_tool_for_reading_or_the_one_for_writing() -> None:
    api = Api()
    peer = client("shop.add_pet", api=api)
    result = await peer.request("tools/call", {"name": "pets_read", "arguments": run("pets_getPet", id="7")})
    assert result["structuredContent"] == {"id": 1, "name": "Rex"}
    assert api.path == "/pets/7"
    await peer.call("pets_call", **run("pets_addPet", name_de="Rex"))
    assert api.json == {"name[de]": "Rex"}
    sent = len(api.requests)
    assert await peer.error("pets_read", **run("pets_addPet")) == (
        "pets_addPet is not read-only; run it with pets_call"
    )
    assert len(api.requests) == sent


async def test_arguments_are_checked_like_those_of_a_tool_of_the_operation() -> None:
    assert await client().error("pets_read", **run("pets_getPet")) == "missing argument 'id'"
    assert "unknown argument 'x'" in await client().error("pets_read", **run("pets_getPet", id="1", x=1))


async def test_a_hidden_operation_is_unknown_like_one_that_does_not_exist() -> None:
    peer, api = client(), Api()
    assert "pets_addPet" not in await found(peer)
    assert "pets_addPet" in await found(client("shop.add_pet"))
    for tool in ("pets_describe", "pets_read", "pets_call"):
        texts = {
            (await peer.error(tool, operation=name)).replace(name, "?") for name in ("pets_addPet", "pets_nothing")
        }
        assert texts == {"Unknown operation: ?; find its name with pets_search"}
    assert not api.requests


async def test_a_missing_scope_is_requested_and_a_toolset_permission_hides_all() -> None:
    assert "pets_removePet" in await found(client())
    with pytest.raises(InsufficientScope) as refused:
        await client().request("tools/call", {"name": "pets_call", "arguments": run("pets_removePet", id="1")})
    assert list(refused.value.scopes) == ["pets:delete"]
    assert await client(permission="shop.view_pet").names() == []


@pytest.mark.django_db
async def test_policies_apply_by_the_name_of_the_operation() -> None:
    await ToolPolicy.objects.acreate(tool="pets_getPet", disabled=True)
    await ToolPolicy.objects.acreate(tool="pets_listPets", rate="1/h")
    peer = client()
    assert "pets_getPet" not in await found(peer)
    await peer.call("pets_read", **run("pets_listPets"))
    assert "pets_listPets was called too often" in await peer.error("pets_read", **run("pets_listPets"))


async def test_the_record_of_a_call_names_the_operation_once_it_is_permitted() -> None:
    targets: list[str | None] = []

    async def note(call: Call, call_next: Any) -> Any:
        try:
            return await call_next(call)
        finally:
            targets.append(call.record.target)

    made = toolset(PETS, prefix="pets", style="generic", routes=ROUTES)
    peer = PipelineClient(make_server(toolsets=[made], middleware=[note]), principal=make_principal())
    for name in ("pets_listPets", "pets_addPet"):
        await peer.request("tools/call", {"name": "pets_call", "arguments": run(name)})
    assert targets == ["pets_listPets", "pets_call"]


def test_more_operations_than_the_limit_are_served_in_this_style_or_with_a_higher_limit() -> None:
    many = document({f"/pets/{number}": {"get": operation()} for number in range(12)})
    with pytest.raises(DeclarationError, match=r"12 operations .* 10 is the limit; .*style='generic'"):
        make_server(toolsets=[toolset(many, max_tools=10)])
    assert len(make_server(toolsets=[toolset(many, max_tools=12)]).registry.tools) == 12
    assert len(make_server(toolsets=[toolset(many, max_tools=10, style="generic")]).registry.tools) == 4


def test_an_unknown_style_is_refused() -> None:
    with pytest.raises(DeclarationError, match="style='gen' is invalid; use per_operation or generic"):
        OpenAPIToolset(PETS, style="gen")  # type: ignore[arg-type]


def test_checks_report_an_operation_that_cannot_be_built() -> None:
    broken = document({"/x": {"get": operation(parameters=[{"$ref": "#/nothing"}])}})
    made = make_server(toolsets=[toolset(broken, style="generic")])
    assert ["'#/nothing' refers to nothing" in str(message) for message in check_deferred_operations(None)] == [True]
    del made


def run(name: str, **arguments: Any) -> dict[str, Any]:
    """Arguments of a tool that runs an operation."""
    return {"operation": name, "arguments": arguments}
