"""The order of checks in the stateless era, with exact statuses and codes.

The specification lays down no total order; this one satisfies its text and the conformance suite:

     1 Origin and Host                  403            10 version served               400 -32022
     2 credentials                      401, 403       11 method served                404 -32601
     3 method, size, media types        405 413 415    12 shapes inside _meta, params  400 -32602
     4 JSON                             400 -32700     13 tool or prompt known         400 -32602, scopes 403
     5 one request or notification      400 -32600     14 Mcp-Param-* headers          400 -32020
     6 a notification is accepted       202            15 client capability            400 -32021
     8 _meta with version, capabilities 400 -32602     16 requestState                 400 -32602
     9 routing headers                  400 -32020     17 tool arguments               200, isError

Step 7, the era, is decided by then: see test_eras. Tests break two rules at once where the order between them matters.
"""

import json

from tests.interaction.clients import META, STATELESS
from tests.interaction.transports import on_http

VERSION = META + "protocolVersion"
CAPABILITIES = META + "clientCapabilities"
ADD = {"name": "add", "arguments": {"a": 1, "b": 2}}


def without(message, *path):
    """A copy of a message without one member."""
    copy = json.loads(json.dumps(message))
    place = copy
    for name in path[:-1]:
        place = place[name]
    del place[path[-1]]
    return copy


async def test_step_1_a_foreign_origin_is_forbidden_before_the_token_is_looked_at(modern):
    client = modern(token="nobody")
    assert (await client.request("tools/list", headers={"origin": "https://evil.example"})).status == 403


async def test_step_1_a_foreign_host_is_refused_before_the_token_is_looked_at(modern):
    reply = await modern(token="nobody").request("tools/list", headers={"host": "evil.example"})
    assert reply.status in (400, 403, 421)


@on_http
async def test_step_2_an_unknown_token_is_unauthorized_before_the_body_is_read(modern):
    reply = await modern(token="nobody").post(body=b"{")
    assert reply.status == 401
    assert reply.headers["www-authenticate"].startswith("Bearer")


@on_http
async def test_step_2_a_missing_token_is_unauthorized(modern):
    assert (await modern(token=None).request("tools/list")).status == 401


@on_http
async def test_step_3_other_methods_are_not_allowed(modern, subtests):
    for method in ["PUT", "PATCH", "HEAD", "GET", "DELETE"]:
        with subtests.test(method=method):
            reply = await modern().post(method=method, body=b"")
            assert reply.status == 405
            assert "POST" in reply.headers["allow"]


@on_http
async def test_step_3_another_media_type_is_unsupported_before_the_body_is_parsed(modern, subtests):
    for media_type in ["text/plain", "application/xml", "application/jsonx", None, "multipart/form-data"]:
        with subtests.test(media_type=media_type):
            reply = await modern().post(body=b"{", headers={"content-type": media_type})
            assert reply.status == 415


async def test_step_3_json_may_be_spelled_with_parameters_and_in_any_case(modern, subtests):
    for media_type in ["application/json; charset=utf-8", "Application/JSON", "application/json;charset=UTF-8"]:
        with subtests.test(media_type=media_type):
            assert (await modern().request("tools/list", headers={"content-type": media_type})).served


async def test_step_3_an_accept_header_may_be_wider_than_needed(modern, subtests):
    for accept in [
        "*/*",
        "application/json, text/event-stream;q=0.5",
        "text/event-stream,application/json",
        "application/*, text/*",
    ]:
        with subtests.test(accept=accept):
            assert (await modern().request("tools/list", headers={"accept": accept})).served


async def test_step_3_an_accept_header_that_takes_neither_is_not_acceptable(modern):
    assert (await modern().request("tools/list", headers={"accept": "text/html"})).status == 406


async def test_step_4_a_body_that_is_not_json_is_a_parse_error_without_an_id(modern, subtests):
    for body in [b"{", b"nonsense", b'{"a":1}}', b'{"jsonrpc": NaN}']:
        with subtests.test(body=body):
            reply = await modern().post(body=body)
            assert reply.refused(400, -32700)
            assert "id" not in reply.message


async def test_step_5_a_body_that_is_not_one_request_is_an_invalid_request(modern, subtests):
    for message in [
        7,
        "text",
        None,
        [],
        {},
        {"jsonrpc": "1.0", "id": 1, "method": "tools/list"},
        {"id": 1, "method": "tools/list"},
        {"jsonrpc": "2.0", "id": 1, "method": 7},
        {"jsonrpc": "2.0", "id": 1},
        {"jsonrpc": "2.0", "id": None, "method": "tools/list"},
        {"jsonrpc": "2.0", "id": 1.5, "method": "tools/list"},
        {"jsonrpc": "2.0", "id": True, "method": "tools/list"},
        {"jsonrpc": "2.0", "id": {}, "method": "tools/list"},
        {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": []},
        {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": "x"},
        {"jsonrpc": "2.0", "id": 1, "result": {}},
        {"jsonrpc": "2.0", "id": 1, "error": {"code": 1, "message": "no"}},
        [{"jsonrpc": "2.0", "id": 1, "method": "tools/list"}],
    ]:
        with subtests.test(message=message):
            reply = await modern().post(message, routing={"mcp-protocol-version": STATELESS})
            assert reply.refused(400, -32600)


async def test_step_5_a_readable_id_is_echoed_in_the_error(modern):
    reply = await modern().post({"jsonrpc": "2.0", "id": 5, "method": 7}, routing={"mcp-protocol-version": STATELESS})
    assert reply.message["id"] == 5


async def test_step_6_a_notification_is_accepted_with_an_empty_body(modern, subtests):
    for method in ["notifications/cancelled", "notifications/initialized", "notifications/made_up"]:
        with subtests.test(method=method):
            reply = await modern().notify(method, routing={"mcp-method": None})
            assert reply.accepted


async def test_step_8_a_request_without_its_meta_is_invalid_params_for_all_headers(modern, subtests):
    for path in [
        ("params",),
        ("params", "_meta"),
        ("params", "_meta", VERSION),
        ("params", "_meta", CAPABILITIES),
    ]:
        with subtests.test(path=path):
            client = modern()
            message = without(client.request_message("tools/list", {}), *path)
            reply = await client.post(message, routing={"mcp-method": "wrong"})
            assert reply.refused(400, -32602)
            assert reply.message["id"] == message["id"]


async def test_step_9_a_header_that_differs_wins_over_an_unknown_version(modern):
    client = modern()
    message = client.request_message("tools/list", meta={VERSION: "v999"})
    assert (await client.post(message)).refused(400, -32020)


async def test_step_9_a_missing_header_is_a_mismatch(modern, subtests):
    for name in ["mcp-protocol-version", "mcp-method"]:
        with subtests.test(name=name):
            assert (await modern().request("tools/list", headers={name: None})).refused(400, -32020)


async def test_step_9_a_wrong_method_header_wins_over_an_unknown_method(modern):
    reply = await modern().request("nothing/like/this", headers={"mcp-method": "tools/list"})
    assert reply.refused(400, -32020)


async def test_step_10_a_version_that_is_not_served_is_unsupported(modern, subtests):
    for version in ["v999", "2027-01-01", ""]:
        with subtests.test(version=version):
            client = modern()
            message = client.request_message("nothing/like/this", meta={VERSION: version})
            reply = await client.post(message, routing={"mcp-protocol-version": version})
            assert reply.refused(400, -32022)
            assert reply.error["data"] == {"supported": [STATELESS], "requested": version}


async def test_step_11_a_method_that_is_not_served_is_not_found(modern, subtests):
    for method in [
        "initialize",
        "ping",
        "logging/setLevel",
        "resources/subscribe",
        "resources/unsubscribe",
        "tasks/get",
        "tasks/result",
        "tasks/list",
        "nothing/like/this",
        "",
    ]:
        with subtests.test(method=method):
            reply = await modern().request(method)
            assert reply.refused(404, -32601)


async def test_step_11_an_unknown_method_wins_over_a_bad_meta_value(modern):
    reply = await modern().request("nothing/like/this", meta={META + "logLevel": "loud"})
    assert reply.refused(404, -32601)


async def test_step_12_a_meta_value_of_the_wrong_shape_is_invalid_params(modern, subtests):
    for meta in [
        {CAPABILITIES: []},
        {CAPABILITIES: "all"},
        {META + "clientInfo": "me"},
        {META + "logLevel": "loud"},
        {"progressToken": []},
    ]:
        with subtests.test(meta=meta):
            client = modern()
            assert (await client.tool("no_such_tool", meta=meta)).refused(400, -32602)


async def test_step_12_a_version_that_is_no_string_is_invalid_params(modern):
    client = modern()
    assert (await client.post(client.request_message("tools/list", meta={VERSION: 7}))).refused(400, -32602)


async def test_step_12_a_meta_that_is_no_object_is_invalid_params(modern, subtests):
    for meta in [7, [], "meta", None]:
        with subtests.test(meta=meta):
            message = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {"_meta": meta}}
            assert (await modern().post(message)).refused(400, -32602)


async def test_step_13_an_unknown_tool_wins_over_its_parameter_headers(modern):
    reply = await modern().tool("no_such_tool", {"region": "north"}, routing={"mcp-param-region": "south"})
    assert reply.refused(400, -32602)


async def test_step_14_a_parameter_header_that_differs_wins_over_bad_arguments(modern):
    reply = await modern().tool("routed", {"region": "north", "shard": "x"}, headers={"mcp-param-region": "south"})
    assert reply.refused(400, -32020)


async def test_step_15_a_missing_capability_is_refused_before_a_stream_begins(modern):
    reply = await modern(capabilities={}).tool("ask_name")
    assert reply.refused(400, -32021)
    assert reply.error["data"] == {"requiredCapabilities": {"elicitation": {"form": {}}}}


async def test_step_15_a_missing_sub_capability_is_named(modern):
    reply = await modern(capabilities={"elicitation": {"form": {}}}).tool("ask_link")
    assert reply.error["data"] == {"requiredCapabilities": {"elicitation": {"url": {}}}}


async def test_step_16_a_state_that_does_not_verify_is_invalid_params(modern, subtests):
    for state in ["made up", "", 7, {}]:
        with subtests.test(state=state):
            reply = await modern().tool("ask_name", requestState=state)
            assert reply.refused(400, -32602)


async def test_step_16_a_bad_state_wins_over_bad_arguments(modern):
    reply = await modern().tool("ask_more", {"number": "x"}, requestState="made up")
    assert reply.refused(400, -32602)


async def test_step_17_arguments_against_the_schema_are_a_result(modern):
    reply = await modern().tool("add", {"a": "x"})
    assert (reply.served, reply.result["isError"]) == (True, True)


async def test_a_request_that_passes_every_step_is_served(modern):
    reply = await modern().tool(**ADD)
    assert (reply.served, reply.result["structuredContent"]) == (True, {"result": 3})
