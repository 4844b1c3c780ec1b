"""Arguments of tools: their names and groups, on the wire and at the remote API."""

import json
import re
from typing import Any
from urllib.parse import parse_qsl

from asgiref.sync import async_to_sync
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.contrib.openapi.pets import Api, document, operation, parameter, peer, tools

HOST_PATTERN = re.compile(r"[a-zA-Z0-9_.-]{1,64}")
TEXT = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=70)


def listing(*parameters: dict[str, Any], **members: Any) -> dict[str, Any]:
    """A document with one operation, `list`."""
    return document({"/pets": {"get": operation(operationId="list", parameters=list(parameters), **members)}})


def lookups(fields: int, endings: int) -> list[dict[str, Any]]:
    return [parameter(f"f{field}__l{ending}", "query") for field in range(fields) for ending in range(endings)]


async def call(source: dict[str, Any], arguments: dict[str, Any]) -> tuple[Api, dict[str, Any]]:
    api = Api()
    params = {"name": next(iter(await tools(source))), "arguments": arguments}
    return api, await peer(source, api).request("tools/call", params)


async def test_a_name_that_hosts_refuse_is_replaced_and_described() -> None:
    source = listing(parameter("filter[name]", "query", description="Part of it."), parameter("$top", "query"))
    properties = (await tools(source))["list"]["inputSchema"]["properties"]
    assert properties["filter_name"]["description"] == 'Part of it. Named "filter[name]" in the API.'
    assert properties["top"]["description"] == 'Named "$top" in the API.'
    api, _ = await call(source, {"filter_name": "Rex", "top": "3"})
    assert api.path == "/pets?filter%5Bname%5D=Rex&%24top=3"


async def test_an_error_names_the_argument_of_the_tool_not_the_parameter() -> None:
    source = listing(parameter("x!trace", "header"), parameter("a[b]", "query", schema={"type": "integer"}))
    _, result = await call(source, {"x_not_trace": "two\nlines"})
    assert result["content"][0]["text"].startswith("x_not_trace: control characters")
    _, result = await call(source, {"a_b": "x"})
    assert result["content"][0]["text"].startswith("a_b: ")
    _, result = await call(source, {"a[b]": 1})
    assert result["content"][0]["text"] == "a[b]: is not an argument; its name here is 'a_b'"


async def test_an_error_of_a_renamed_body_member_names_its_argument() -> None:
    schema = {"type": "object", "properties": {"photo[0]": {"type": "string", "format": "binary"}}}
    body = {"required": True, "content": {"multipart/form-data": {"schema": schema}}}
    source = document({"/pets": {"post": operation(operationId="send", requestBody=body)}})
    _, result = await call(source, {"photo_0": "no base64!"})
    assert result["content"][0]["text"] == "photo_0: is not base64; encode the bytes in base64"


@settings(max_examples=25, deadline=None)
@given(st.lists(TEXT, min_size=1, max_size=6, unique=True), st.lists(TEXT, min_size=1, max_size=6, unique=True))
def test_parameters_with_any_name_reach_the_api_unchanged(query: list[str], members: list[str]) -> None:
    async_to_sync(check_names)(query, members)


async def check_names(query: list[str], members: list[str]) -> None:
    """Call a tool with a value for each name, and compare the request."""
    body = {
        "required": True,
        "content": {
            "application/json": {
                "schema": {"type": "object", "properties": {name: {"type": "string"} for name in members}}
            }
        },
    }
    parameters = [parameter(name, "query") for name in query]
    source = document({"/pets": {"post": operation(operationId="send", parameters=parameters, requestBody=body)}})
    properties = list((await tools(source))["send"]["inputSchema"]["properties"])

    assert all(HOST_PATTERN.fullmatch(name) for name in properties)
    assert len(set(properties)) == len(query) + len(members)
    api, _ = await call(source, {name: f"value {number}" for number, name in enumerate(properties)})
    values = [f"value {number}" for number in range(len(properties))]
    sent = parse_qsl(api.last.url.query.decode(), keep_blank_values=True)
    assert sent == list(zip(query, values[: len(query)], strict=True))
    assert api.json == dict(zip(members, values[len(query) :], strict=True))


async def test_few_filters_are_arguments() -> None:
    properties = (await tools(listing(*lookups(5, 10))))["list"]["inputSchema"]["properties"]
    assert len(properties) == 50


async def test_many_filters_are_keys_of_one_argument_and_plain_ones_are_not() -> None:
    source = listing(parameter("limit", "query"), parameter("must__be", "query", required=True), *lookups(40, 10))
    schema = (await tools(source))["list"]["inputSchema"]
    assert list(schema["properties"]) == ["limit", "must__be", "filters"]
    assert schema["required"] == ["must__be"]
    assert "f0, f1, f2" in schema["properties"]["filters"]["description"]
    assert "__l0, __l1" in schema["properties"]["filters"]["description"]
    api, _ = await call(source, {"limit": "2", "must__be": "x", "filters": {"f3__l7": "a", "f0__l0": "b"}})
    assert parse_qsl(api.last.url.query.decode()) == [
        ("limit", "2"),
        ("must__be", "x"),
        ("f0__l0", "b"),
        ("f3__l7", "a"),
    ]


async def test_keys_of_the_group_are_checked() -> None:
    source = listing(parameter("n__gt", "query", schema={"type": "integer"}), *lookups(40, 10))
    for arguments, expected in [
        ({"filters": {"f3__l77": "a"}}, "filters: unknown key 'f3__l77'; did you mean 'f3__l7'?"),
        ({"filters": {"n__gt": "many"}}, "filters.n__gt: "),
        ({"f3__l7": "a"}, "f3__l7: is not an argument; give 'f3__l7' as a key of 'filters'"),
    ]:
        _, result = await call(source, arguments)
        assert result["isError"]
        assert result["content"][0]["text"].startswith(expected)


async def test_a_thousand_plain_filters_are_grouped_after_the_common_ones() -> None:
    plain = [parameter(f"p{number}", "query") for number in range(1000)]
    source = listing(*plain, parameter("ordering", "query"), parameter("filters", "query"))
    entry = (await tools(source))["list"]
    properties = entry["inputSchema"]["properties"]
    assert "ordering" in properties
    assert len(properties) == 51
    assert len(json.dumps(entry)) < 32 * 1024
    api, _ = await call(source, {"ordering": "name", "filters": {"p999": "x", "filters": "y"}})
    assert parse_qsl(api.last.url.query.decode()) == [("p999", "x"), ("ordering", "name"), ("filters", "y")]


async def test_the_group_avoids_the_name_of_an_argument() -> None:
    source = listing(parameter("filters", "query", required=True), *lookups(40, 10))
    assert list((await tools(source))["list"]["inputSchema"]["properties"]) == ["filters", "filters_2"]
