"""Parameters that are filled from the request's headers."""

from typing import Annotated, Any, Literal

import pytest
from pydantic import Field

from mcp_django import Depends, Header
from mcp_django.protocol.errors import InternalError
from mcp_django.schema import DeclarationError
from mcp_django.server.primitives.decorators import build_tool
from tests.server.client import HANDSHAKE, PipelineClient, make_server

Tenant = Annotated[str, Header("X-Tenant")]


def serving(fn: Any, **peer: Any) -> PipelineClient:
    server = make_server()
    server.tool(fn, name="it")
    return PipelineClient(server, **peer)


async def test_a_header_parameter_is_not_an_argument() -> None:
    def it(what: str, tenant: Tenant, limit: Annotated[int, Header("X-Limit")] = 5) -> list[Any]:
        return [what, tenant, limit]

    peer = serving(it, headers={"x-tenant": "acme", "X-LIMIT": "7"})
    (listed,) = (await peer.request("tools/list"))["tools"]
    assert set(listed["inputSchema"]["properties"]) == {"what"}
    assert (await peer.call("it", what="a"))["structuredContent"] == {"result": ["a", "acme", 7]}
    assert "tenant" in await peer.error("it", what="a", tenant="mine")


async def test_the_header_is_named_by_the_parameter_or_the_option() -> None:
    async def it(x_request_id: Annotated[str, Header()]) -> str:
        return x_request_id

    assert await serving(it, headers={"X-Request-Id": "r1"}).text("it") == "r1"


async def test_a_missing_header_is_the_default_or_an_error() -> None:
    def it(tenant: Tenant, plan: Annotated[str | None, Header("X-Plan")] = None) -> str:
        return f"{tenant} {plan}"

    for headers in (None, {}):
        assert await serving(it, headers=headers).error("it") == "The request must have the header X-Tenant"
    assert await serving(it, headers={"X-Tenant": "acme"}).text("it") == "acme None"


async def test_the_header_is_converted_to_the_type() -> None:
    cases: list[tuple[Any, str, Any]] = [
        (Annotated[int, Header("X")], "5", 5),
        (Annotated[int | None, Header("X")], "5", 5),
        (Annotated[int, Header("X")] | None, "5", 5),
        (Annotated[bool, Header("X")], "true", True),
        (Annotated[Literal["a", "b"], Header("X")], "b", "b"),
        (Annotated[int, Header("X"), Field(ge=3)], "3", 3),
    ]
    violations = []
    for annotation, text, value in cases:

        async def it(x: Any) -> list[Any]:
            return [x]

        it.__annotations__["x"] = annotation
        result = await serving(it, headers={"X": text}).call("it")
        if result.get("structuredContent") != {"result": [value]}:
            violations.append((annotation, text, result))
    assert violations == []


async def test_an_invalid_header_is_an_error_that_names_it() -> None:
    def it(x: Annotated[int, Header("X-Limit"), Field(ge=3)]) -> int:
        return x

    for text in ("many", "2"):
        assert "X-Limit" in await serving(it, headers={"X-Limit": text}).error("it")


async def test_resources_prompts_and_dependencies_take_headers_too() -> None:
    server = make_server()

    def shop(tenant: Tenant) -> str:
        return f"shop of {tenant}"

    @server.resource("test://x")
    def read(tenant: Tenant) -> str:
        return tenant

    @server.prompt
    def greet(what: str, tenant: Tenant) -> str:
        return what + tenant

    @server.tool
    async def buy(shop: Annotated[str, Depends(shop)]) -> str:
        return shop

    peer = PipelineClient(server, headers={"X-Tenant": "acme"}, version=HANDSHAKE)
    assert (await peer.request("resources/read", {"uri": "test://x"}))["contents"][0]["text"] == "acme"
    result = await peer.request("prompts/get", {"name": "greet", "arguments": {"what": "hi "}})
    assert result["messages"][0]["content"]["text"] == "hi acme"
    assert await peer.text("buy") == "shop of acme"
    with pytest.raises(InternalError, match="X-Tenant"):
        await PipelineClient(server).request("resources/read", {"uri": "test://x"})


def test_credential_headers_and_invalid_names_are_refused_at_declaration(subtests: pytest.Subtests) -> None:
    cases = ["Authorization", "cookie", "Proxy-Authorization", "X Tenant", "", "X:Y"]
    for name in cases:
        with subtests.test(name=name):

            def it(x: str) -> None: ...

            it.__annotations__["x"] = Annotated[str, Header(name)]
            with pytest.raises(DeclarationError, match="parameter 'x'"):
                build_tool(it)
