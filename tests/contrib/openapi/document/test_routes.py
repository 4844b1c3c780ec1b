"""Routes: which operations are tools, which resources, which nothing."""

import logging
from typing import Any

import httpx
import pytest

from mcp_django.contrib.openapi import Route
from mcp_django.protocol.errors import InternalError, ResourceNotFound
from mcp_django.protocol.types import ToolAnnotations
from mcp_django.schema import DeclarationError
from tests.contrib.openapi.pets import Api, document, operation, parameter, peer, tools
from tests.server.client import PipelineClient, make_principal

PETS = document(
    {
        "/pets": {
            "get": operation(operationId="listPets", tags=["read"], parameters=[parameter("limit", "query")]),
            "post": operation(operationId="createPet", tags=["write"]),
        },
        "/pets/{id}": {
            "parameters": [parameter("id", "path")],
            "get": operation(operationId="getPet", tags=["read"]),
            "delete": operation(operationId="deletePet", tags=["write"], deprecated=True),
        },
        "/admin/reset": {"post": operation(operationId="adminReset")},
    }
)


async def names(*routes: Route, **options: Any) -> list[str]:
    return sorted(await tools(PETS, routes=routes, **options))


async def test_every_operation_is_a_tool_unless_deprecated() -> None:
    assert await names() == ["adminReset", "createPet", "getPet", "listPets"]
    assert await names(deprecated=True) == ["adminReset", "createPet", "deletePet", "getPet", "listPets"]


async def test_the_first_matching_route_decides(subtests: pytest.Subtests) -> None:
    for routes, expected in [
        ([Route("* /admin/*", expose=None)], ["createPet", "getPet", "listPets"]),
        ([Route("GET *"), Route(expose=None)], ["getPet", "listPets"]),
        ([Route("/pets"), Route(expose=None)], ["createPet", "listPets"]),
        ([Route(tags=["write"], expose=None)], ["adminReset", "getPet", "listPets"]),
        ([Route(operation_id="*Pet", deprecated=True), Route(expose=None)], ["createPet", "deletePet", "getPet"]),
        ([Route("post,get /pets"), Route(expose=None)], ["createPet", "listPets"]),
        ([Route("GET /pets/{id}", name="pet"), Route("GET *", expose=None)], ["adminReset", "createPet", "pet"]),
    ]:
        with subtests.test(routes=routes, expected=expected):
            assert await names(*routes) == expected


async def test_a_route_sets_name_title_description_and_annotations() -> None:
    route = Route(
        "POST /pets",
        name="add_pet",
        title="Add",
        description="Adds a pet.",
        annotations=ToolAnnotations(destructive=False, idempotent=True),
    )
    tool = (await tools(PETS, routes=[route], prefix="shop_"))["shop_add_pet"]
    assert (tool["title"], tool["description"]) == ("Add", "Adds a pet.")
    assert tool["annotations"] == {"destructiveHint": False, "idempotentHint": True}


async def test_permissions_of_the_toolset_and_of_a_route_are_both_asked_for() -> None:
    route = Route("POST /pets", permission="shop.add_pet", scopes=["write"])
    server = peer(PETS, routes=[route], permission="shop.view_pet", scopes=["read"]).server
    reader = PipelineClient(server, make_principal("shop.view_pet", scopes=["read"]))
    assert await reader.names() == ["adminReset", "getPet", "listPets"]
    writer = PipelineClient(server, make_principal("shop.view_pet", "shop.add_pet", scopes=["read", "write"]))
    assert "createPet" in await writer.names()
    assert await PipelineClient(server, make_principal()).names() == []


def test_a_wrong_rule_is_refused(subtests: pytest.Subtests) -> None:
    for make, told in [
        (lambda: Route("FETCH /pets"), "use GET"),
        (lambda: Route("pets"), "a method and a path"),
        (lambda: Route(tags="write"), "tags is a list"),
        (lambda: Route(expose="prompt"), "'tool', 'resource' or None"),  # type: ignore[arg-type]
        (lambda: Route(uri="pets://all"), "only a resource"),
        (lambda: peer(PETS, routes=[Route("* /amdin/*", expose=None)]), "matches no operation"),
        (lambda: peer(PETS, routes=["/pets"]), "a list of Route"),
        (lambda: peer(PETS, routes=[Route("/pets", name="pets")]), "already registered"),
        (lambda: peer(PETS, routes=[Route("/pets", name="no name")]), "letters, digits"),
        (lambda: peer(PETS, routes=[Route("POST /pets", expose="resource")]), "only a GET"),
        (lambda: peer(PETS, routes=[Route("GET /pets/{id}", expose="resource", uri="pet://x")]), "needs id"),
        (lambda: peer(PETS, routes=[Route("GET /pets", expose="resource", uri="pet://{nobody}")]), "has no nobody"),
    ]:
        with subtests.test(make=make, told=told), pytest.raises(DeclarationError, match=told):
            make()


async def test_equal_names_are_made_unique_and_both_are_reported(caplog: pytest.LogCaptureFixture) -> None:
    source = document({"/a": {"get": operation(operationId="get it")}, "/b": {"get": operation(operationId="get/it")}})
    with caplog.at_level(logging.WARNING, logger="mcp_django.providers"):
        assert sorted(await tools(source)) == ["get_it", "get_it_2"]
    assert "GET /b is called get_it_2, because GET /a is called get_it" in caplog.text


RESOURCES = [Route("GET *", expose="resource"), Route(expose=None)]


async def test_reading_operations_can_be_resources() -> None:
    api = Api()
    client = peer(PETS, api, prefix="pets", routes=RESOURCES)
    templates = (await client.request("resources/templates/list", {}))["resourceTemplates"]
    assert [one["uriTemplate"] for one in templates] == ["pets://pets/{id}", "pets://pets{?limit}"]
    found = await client.request("resources/read", {"uri": "pets://pets/a%20b"})
    assert (api.path, found["contents"][0]["mimeType"]) == ("/pets/a%20b", "application/json")
    await client.request("resources/read", {"uri": "pets://pets?limit=5"})
    assert api.path == "/pets?limit=5"


async def test_a_resource_without_variables_is_listed() -> None:
    source = document({"/status": {"get": operation(summary="How it is")}})
    client = peer(source, routes=[Route("GET /status", expose="resource", name="status")])
    (listed,) = (await client.request("resources/list", {}))["resources"]
    assert (listed["uri"], listed["name"], listed["title"]) == ("api.example.com://status", "status", "How it is")
    assert await client.request("resources/read", {"uri": listed["uri"]})


async def test_a_resource_may_have_another_uri() -> None:
    api = Api()
    route = Route("GET /pets/{id}", expose="resource", uri="pet://{id}")
    await peer(PETS, api, routes=[route]).request("resources/read", {"uri": "pet://7"})
    assert api.path == "/pets/7"


async def test_a_uri_cannot_leave_its_path(subtests: pytest.Subtests) -> None:
    for uri in ["pets://pets/..", "pets://pets/a%2Fb", "pets://pets/%2E%2E", "pets://pets/"]:
        with subtests.test(uri=uri):
            api = Api()
            with pytest.raises(ResourceNotFound):
                await peer(PETS, api, prefix="pets", routes=RESOURCES).request("resources/read", {"uri": uri})
            assert api.requests == []


async def test_a_404_is_resource_not_found_and_other_errors_are_reported() -> None:
    for status, problem in ((404, ResourceNotFound), (410, ResourceNotFound), (500, InternalError)):
        client = peer(PETS, Api(lambda request, s=status: httpx.Response(s)), prefix="pets", routes=RESOURCES)
        with pytest.raises(problem):
            await client.request("resources/read", {"uri": "pets://pets/7"})
