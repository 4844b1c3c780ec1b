"""Garbage in: the specified answer comes out, and the next request is served."""

import json

import pytest

from tests.interaction.clients import STATELESS
from tests.interaction.transports import contract, on_http
from tests.interaction.wire import http_scope

VERSION = {"mcp-protocol-version": STATELESS}


async def still_served(client):
    reply = await client.tool("add", {"a": 1, "b": 2})
    assert reply.result["content"][0]["text"] == "3"


NOT_UTF8 = (
    b"\xff\xfe\x00\x00",
    b'{"jsonrpc":"2.0","id":1,"method":"\xc3\x28"}',
    b'{"jsonrpc":"2.0","id":1,"method":"\xed\xa0\x80"}',
)
BLANK = (b"", b" ")
NOT_JSON = (
    *BLANK,
    b"{",
    b"}{",
    b"nonsense",
    b'{"jsonrpc":"2.0","id":1,"method":"tools/list"',
    b'{"jsonrpc":"2.0",}',
    b"{'jsonrpc':'2.0'}",
    *NOT_UTF8,
    b"\xef\xbb\xbf{}x",
    b"\x00" * 100,
    b"NaN",
    b'{"id": Infinity}',
    b'{"a":1}{"a":2}',
    b'{"jsonrpc":"2.0","id":1,"method":"\\ud800"}',
)
NOT_SENT = {"websocket": NOT_UTF8, "stdio": BLANK}
"""A text frame is UTF-8, and a blank line is ignored."""


@contract
async def test_a_body_that_is_not_json_is_a_parse_error(either, transport, subtests):
    client = await either()
    for body in NOT_JSON:
        if body in NOT_SENT.get(transport.name, ()):
            continue
        with subtests.test(body=body):
            reply = await client.post(body=body, routing=VERSION if client.stateless else {})
            assert reply.refused(400, -32700)
            assert "id" not in reply.message
            await still_served(client)


@contract
async def test_a_message_nested_too_deep_is_refused(either, subtests):
    for depth in [65, 1_000, 100_000]:
        for opening, closing in [("[", "]"), ('{"a":', "}")]:
            with subtests.test(depth=depth, opening=opening, closing=closing):
                client = await either()
                inner = opening * depth + ("1" if opening != "[" else "") + closing * depth
                body = b'{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"x":%s}}' % inner.encode()
                reply = await client.post(body=body)
                assert reply.refused(400, -32600) or reply.refused(400, -32700)
                await still_served(client)


async def test_a_message_nested_as_deep_as_allowed_is_read(either):
    client = await either()
    deep = json.loads("[" * 60 + "]" * 60)
    assert (await client.request("tools/list", {"x": deep})).served


async def test_an_unusual_id_is_echoed_or_refused(either, subtests):
    for id in [10**30, -(10**30), 2**64, "x" * 10_000, "\x00", "\U0001f600", "</script>"]:
        with subtests.test(id=id):
            client = await either()
            reply = await client.request("tools/list", id=id)
            if reply.served:
                assert reply.message["id"] == id
            else:
                assert reply.refused(400, -32600)
            await still_served(client)


@contract
async def test_an_id_of_another_type_is_an_invalid_request(either, subtests):
    for id in [None, True, False, 1.5, [], {}, [1], {"a": 1}]:
        with subtests.test(id=id):
            client = await either()
            message = client.request_message("tools/list")
            message["id"] = id
            reply = await client.post(message)
            assert reply.refused(400, -32600)
            assert "id" not in reply.message
            await still_served(client)


async def test_a_method_of_another_type_is_an_invalid_request(either, subtests):
    for method in [None, True, 7, [], {}, {"a": []}, ["tools/list"]]:
        with subtests.test(method=method):
            client = await either()
            message = client.request_message("tools/list")
            message["method"] = method
            reply = await client.post(message, routing={"mcp-method": None})
            assert reply.refused(400, -32600)
            assert reply.message["id"] == message["id"]
            await still_served(client)


async def test_another_json_rpc_version_is_an_invalid_request(either, subtests):
    for version in [None, "1.0", 2.0, 2, "2.0 ", []]:
        with subtests.test(version=version):
            client = await either()
            reply = await client.post({**client.request_message("tools/list"), "jsonrpc": version})
            assert reply.refused(400, -32600)


async def test_unknown_members_are_ignored(either):
    client = await either()
    assert (await client.post({**client.request_message("tools/list"), "extra": [1, {"deep": None}]})).served


async def test_a_repeated_member_is_answered(either):
    client = await either()
    message = client.request_message("tools/list")
    body = json.dumps(message).replace('"jsonrpc": ', '"jsonrpc": "1.0", "jsonrpc": ').encode()
    reply = await client.post(message, body=body)
    assert reply.served or reply.refused(400, -32600)
    await still_served(client)


@on_http
async def test_a_declared_body_beyond_the_limit_is_refused_unread(limits, either):
    limits(BODY=2000)
    client = await either()
    reply = await client.post(body=[b"{}"], headers={"content-length": "3000"})
    assert reply.status == 413
    await still_served(client)


@pytest.mark.transports("asgi", "view", "stdio")
async def test_a_body_that_grows_beyond_the_limit_is_refused(limits, either):
    limits(BODY=2000)
    client = await either()
    reply = await client.post(body=[b" " * 500] * 10)
    assert reply.status == 413 if client.transport.http else reply.refused(413, -32600)
    await still_served(client)


async def test_a_body_as_large_as_allowed_is_read(limits, either):
    limits(BODY=5000)
    client = await either()
    message = client.request_message("tools/list")
    body = json.dumps(message).encode().ljust(5000)
    assert (await client.post(message, body=body)).served


@on_http
async def test_a_malformed_content_length_is_answered(either, subtests):
    for length in ["-1", "many", "", "1e3", "99999999999999999999999"]:
        with subtests.test(length=length):
            client = await either()
            message = client.request_message("tools/list")
            reply = await client.post(message, headers={"content-length": length})
            assert reply.status in (200, 400, 413)
            await still_served(client)


@on_http
async def test_a_body_in_many_pieces_is_read_whole(either):
    client = await either()
    message = client.request_message("tools/list")
    pieces = [bytes([byte]) for byte in json.dumps(message).encode()]
    assert (await client.post(message, body=pieces)).served


@on_http
async def test_a_disconnect_within_the_body_is_not_an_error(either):
    client = await either()
    events = iter([{"type": "http.request", "body": b'{"jsonrpc"', "more_body": True}, {"type": "http.disconnect"}])
    sent = []

    async def receive():
        return next(events)

    async def send(event):
        sent.append(event)

    scope = http_scope("POST", client.transport.path("interaction"), client.headers({}))
    await client.transport.app(scope, receive, send)
    assert sent == []
    await still_served(client)


@on_http
async def test_a_repeated_header_is_answered(either, subtests):
    for name in ["authorization", "content-type", "host", "mcp-session-id", "origin", "accept"]:
        with subtests.test(name=name):
            client = await either()
            message = client.request_message("tools/list")
            value = client.headers(message).get(name, "http://127.0.0.1:8000")
            reply = await client.post(message, extra=[(name, value), (name, "something else")])
            assert reply.status < 500
            await still_served(client)


@on_http
async def test_malformed_credentials_are_unauthorized(either, subtests):
    for value in ["Bearer", "Bearer ", "Basic YTpi", "Bearer a b", "bearer\x00", "\xff", "Bearer " + "x" * 20_000]:
        with subtests.test(value=value):
            client = await either()
            reply = await client.post(
                {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}, headers={"authorization": value}
            )
            assert reply.status in (400, 401)
            await still_served(client)


async def test_the_scheme_of_credentials_may_be_spelled_in_any_case(either):
    client = await either()
    assert (await client.request("tools/list", headers={"authorization": "bEARER alice"})).served


@on_http
async def test_malformed_header_values_are_answered(either, subtests):
    for value in ["\x00", "\xff\xfe", "x" * 9_000]:
        for name in [
            "mcp-session-id",
            "mcp-protocol-version",
            "mcp-method",
            "mcp-name",
            "accept",
            "content-type",
            "origin",
        ]:
            with subtests.test(value=value, name=name):
                client = await either()
                reply = await client.tool("add", {"a": 1, "b": 2}, headers={name: value})
                assert reply.status < 500
                await still_served(client)


@contract
async def test_malformed_calls_are_answered(either, subtests):
    for params in [
        {"name": "add", "arguments": {"a": {"$ref": "#"}, "b": []}},
        {"name": "add", "arguments": {"": 1}},
        {"name": "add\x00", "arguments": {}},
        {"name": "x" * 100_000},
        {"name": "__class__"},
        {"name": "add", "arguments": {"self": 1, "a": 1, "b": 2}},
        {"name": "add", "arguments": {"a": 1e400 if False else 1e308, "b": 1}},
        {"name": "steps", "arguments": {"count": 1, "ctx": {}}},
    ]:
        with subtests.test(params=params):
            client = await either()
            reply = await client.request("tools/call", params)
            assert reply.status in (200, 400, None)
            assert "error" in reply.message or reply.result["isError"]
            await still_served(client)


async def test_an_error_page_repeats_nothing_of_the_request(either):
    client = await either()
    reply = await client.post(body=b"<script>alert(1)</script>")
    assert b"<script>" not in reply.body
