"""Routing headers and `x-mcp-header` (basic/transports/streamable-http)."""

import base64

from tests.interaction.transports import on_http

ADD = {"a": 1, "b": 2}


def encoded(text):
    return f"=?base64?{base64.b64encode(text.encode()).decode()}?="


def allowed(reply):
    return "error" not in reply.message and not reply.result.get("isError")


async def test_the_method_header_must_equal_the_method_letter_for_letter(modern, subtests):
    for method in ["TOOLS/LIST", "Tools/list", "prompts/list", "", "tools/list x"]:
        with subtests.test(method=method):
            assert (await modern().request("tools/list", headers={"mcp-method": method})).verdict == (400, -32020)


async def test_white_space_around_a_header_does_not_count(modern, subtests):
    for spaced in [" tools/list", "tools/list ", "\ttools/list\t", "   tools/list   "]:
        with subtests.test(spaced=spaced):
            assert (await modern().request("tools/list", headers={"mcp-method": spaced})).status == 200


async def test_the_name_header_must_equal_the_name(modern, subtests):
    for name in ["ADD", "add ing", "", "steps"]:
        with subtests.test(name=name):
            assert (await modern().tool("add", ADD, headers={"mcp-name": name})).verdict == (400, -32020)


async def test_white_space_around_the_name_header_does_not_count(modern):
    assert allowed(await modern().tool("add", ADD, headers={"mcp-name": "  add \t"}))


async def test_methods_with_a_name_need_the_name_header(modern, subtests):
    for method, params in [
        ("tools/call", {"name": "add", "arguments": ADD}),
        ("prompts/get", {"name": "scripted"}),
        ("resources/read", {"uri": "note://static"}),
    ]:
        with subtests.test(method=method, params=params):
            client = modern()
            assert (await client.request(method, params, headers={"mcp-name": None})).verdict == (400, -32020)
            assert (await client.request(method, params)).status == 200


async def test_the_name_header_of_a_read_is_the_uri(modern):
    reply = await modern().request("resources/read", {"uri": "note://static"}, headers={"mcp-name": "note://other"})
    assert reply.verdict == (400, -32020)


async def test_other_methods_ignore_a_name_header(modern):
    assert (await modern().request("tools/list", headers={"mcp-name": "whatever"})).status == 200


@on_http
async def test_the_name_header_may_be_encoded(modern):
    assert allowed(await modern().tool("add", ADD, headers={"mcp-name": encoded("add")}))


async def test_an_encoded_name_that_differs_is_a_mismatch(modern):
    assert (await modern().tool("add", ADD, headers={"mcp-name": encoded("steps")})).verdict == (400, -32020)


async def test_a_uri_beyond_ascii_is_named_encoded(modern):
    uri = "note://nowhere/é"
    reply = await modern().request("resources/read", {"uri": uri}, headers={"mcp-name": encoded(uri)})
    assert reply.error["data"] == {"uri": uri}


@on_http
async def test_raw_bytes_beyond_ascii_in_the_name_header_are_a_mismatch(modern):
    uri = "note://by/é"
    assert (await modern().request("resources/read", {"uri": uri}, headers={"mcp-name": uri})).verdict == (400, -32020)


async def test_the_other_routing_headers_are_never_encoded(modern, subtests):
    for name in ["mcp-method", "mcp-protocol-version"]:
        with subtests.test(name=name):
            client = modern()
            value = client.headers(client.request_message("tools/list"))[name]
            assert (await client.request("tools/list", headers={name: encoded(value)})).verdict == (400, -32020)


async def test_a_body_without_a_name_is_a_params_error_and_no_header_error(modern):
    assert (await modern().request("tools/call", {"arguments": {}})).verdict == (400, -32602)
    assert (await modern().request("tools/call", {"name": 7}, headers={"mcp-name": "7"})).verdict == (400, -32602)


async def test_legacy_requests_may_carry_routing_headers_of_any_content(legacy):
    reply = await (await legacy()).request("tools/list", headers={"mcp-method": "other", "mcp-name": "other"})
    assert reply.status == 200


PARAMETERS = [
    ({"region": "north"}, {"region": "north"}),
    ({"region": "north sea"}, {"region": "north sea"}),
    ({"region": ""}, {"region": ""}),
    ({"region": "Köln"}, {"region": encoded("Köln")}),
    ({"region": " padded "}, {"region": encoded(" padded ")}),
    ({"region": "line\nbreak"}, {"region": encoded("line\nbreak")}),
    ({"region": encoded("x")}, {"region": encoded(encoded("x"))}),
    ({"region": "=?base64?abc"}, {"region": "=?base64?abc"}),
    ({"region": "abc?="}, {"region": "abc?="}),
    ({"region": "=?BASE64?SGVsbG8=?="}, {"region": "=?BASE64?SGVsbG8=?="}),
    ({"region": "SGVsbG8="}, {"region": "SGVsbG8="}),
    ({"region": "north"}, {"region": encoded("north")}),
    ({"shard": 42}, {"shard": "42"}),
    ({"shard": 42}, {"shard": "42.0"}),
    ({"shard": 42.0}, {"shard": "42"}),
    ({"shard": -7}, {"shard": "-7"}),
    ({"shard": 0}, {"shard": "0"}),
    ({"urgent": True}, {"urgent": "true"}),
    ({"urgent": False}, {"urgent": "false"}),
    ({"region": None}, {}),
    ({}, {}),
    ({"region": "north", "shard": 1, "urgent": True}, {"region": "north", "shard": "1", "urgent": "true"}),
]


def make_parameter_headers(headers):
    return {f"mcp-param-{name}": value for name, value in headers.items()}


async def test_a_parameter_header_equal_to_the_body_is_accepted(modern, subtests):
    for arguments, headers in PARAMETERS:
        with subtests.test(arguments=arguments, headers=headers):
            reply = await modern().tool("routed", arguments, headers=make_parameter_headers(headers))
            assert "error" not in reply.message, reply.message


MISMATCHES = [
    ({"region": "north"}, {}),
    ({"region": "north"}, {"region": "south"}),
    ({"region": "north"}, {"region": "North"}),
    ({"region": "north"}, {"region": ""}),
    ({}, {"region": "north"}),
    ({"region": None}, {"region": "north"}),
    ({"region": None}, {"region": ""}),
    ({"region": "Hello"}, {"region": "=?base64?SGVsbG8?="}),
    ({"region": "Hello"}, {"region": "=?base64?SGVs!!!bG8=?="}),
    ({"region": "Hello"}, {"region": "=?base64?SGVs bG8=?="}),
    ({"region": "Hello"}, {"region": "=?base64?/w==?="}),
    ({"region": "Köln"}, {"region": "Köln"}),
    ({"shard": 42}, {"shard": "43"}),
    ({"shard": 42}, {"shard": "forty-two"}),
    ({"shard": 42}, {"shard": ""}),
    ({"shard": 42}, {}),
    ({"urgent": True}, {"urgent": "True"}),
    ({"urgent": True}, {"urgent": "1"}),
    ({"urgent": True}, {"urgent": "false"}),
]


async def test_a_parameter_header_that_differs_from_the_body_is_a_mismatch(modern, subtests):
    for arguments, headers in MISMATCHES:
        with subtests.test(arguments=arguments, headers=headers):
            reply = await modern().tool("routed", arguments, headers=make_parameter_headers(headers))
            assert reply.verdict == (400, -32020), reply.message


async def test_parameter_headers_of_other_names_are_ignored(modern):
    assert allowed(await modern().tool("routed", {}, headers={"mcp-param-colour": "red"}))


async def test_parameter_headers_of_another_tool_are_ignored(modern):
    assert allowed(await modern().tool("add", ADD, headers={"mcp-param-region": "north"}))


async def test_parameter_headers_are_ignored_in_the_handshake_era(legacy):
    reply = await (await legacy()).tool("routed", {"region": "north"}, headers={"mcp-param-region": "south"})
    assert allowed(reply)


async def test_the_schema_shows_which_arguments_are_mirrored(modern):
    tools = (await modern().request("tools/list")).result["tools"]
    properties = next(tool for tool in tools if tool["name"] == "routed")["inputSchema"]["properties"]
    assert {name: schema["x-mcp-header"] for name, schema in properties.items()} == {
        "region": "Region",
        "shard": "Shard",
        "urgent": "Urgent",
    }
