"""Requests made to be dear: long names, countless members, odd nesting. Each is answered soon and in few bytes."""

import time

from mcp_django.schema.validation import messages
from tests.interaction.clients import META

MEGABYTE = 1_000_000
LONG = "n" * 100_000
SOON = 10.0
"""CPU seconds."""
"""Seconds. What takes quadratic time takes minutes."""


def envelope(params):
    meta = f'"_meta":{{"{META}protocolVersion":"2026-07-28","{META}clientCapabilities":{{}}}}'.encode()
    return b'{"jsonrpc":"2.0","id":1,"method":"no/such","params":{%b,%b}}' % (meta, params)


def repeated(pattern, between=b","):
    return between.join([pattern] * (MEGABYTE // (len(pattern) + 1)))


def numbered(pattern):
    return b",".join(pattern % number for number in range(MEGABYTE // (len(pattern) + 5)))


async def test_json_that_is_expensive_to_parse_is_answered_fast(modern, subtests):
    for params in [
        repeated(b'"a":1'),
        numbered(b'"%d":1'),
        b'"a":' + b"9" * MEGABYTE,
        b'"a":0.' + b"9" * MEGABYTE,
        b'"a":1e' + b"9" * MEGABYTE,
        b'"a":"' + b"[" * MEGABYTE + b'"',
        b'"a":"' + b'\\"[' * (MEGABYTE // 3) + b'"',
        b'"a":[' + repeated(b"[]") + b"]",
        b'"a":[' + repeated(b"[{}]") + b"]",
        b'"a":[' + repeated(b"[[[]]]") + b"]",
        b'"a":' + b"[" * MEGABYTE,
        b'"a":' + repeated(b'"[', b""),
        b'"cursor":"' + b"A" * MEGABYTE + b'"',
    ]:
        with subtests.test(params=params):
            client, begun = modern(), time.process_time()
            reply = await client.post(body=envelope(params), routing={"mcp-method": "no/such"})
            assert time.process_time() - begun < SOON
            assert any(reply.refused(*error) for error in ((400, -32700), (400, -32600), (404, -32601)))
            assert len(reply.body) < 50_000
            assert (await client.tool("add", {"a": 1, "b": 2})).served


async def test_a_long_value_is_not_repeated_in_the_refusal(either, subtests):
    for method, params in [
        ("tools/call", {"name": LONG}),
        ("tools/call", {"name": "add", "arguments": {LONG: 1}}),
        ("tools/call", {"name": "add", "arguments": {"a": LONG}}),
        ("tools/call", {"name": "add", "arguments": {f"k{number}": 1 for number in range(50_000)}}),
        ("prompts/get", {"name": LONG}),
        ("prompts/get", {"name": "welcome", "arguments": {LONG: "x"}}),
        ("resources/read", {"uri": LONG}),
        ("resources/read", {"uri": "note://by/" + "%2e" * 30_000}),
        ("tools/list", {"cursor": LONG}),
        ("completion/complete", {"ref": {"type": "ref/prompt", "name": LONG}, "argument": {"name": "a", "value": ""}}),
        ("completion/complete", {"ref": {"type": "ref/resource", "uri": LONG}, "argument": {"name": "a", "value": ""}}),
        (LONG, {}),
    ]:
        with subtests.test(method=method, params=params):
            client, begun = await either(), time.process_time()
            reply = await client.request(method, params)
            assert time.process_time() - begun < SOON
            assert reply.status is None or reply.status < 500
            assert "error" in reply.message or reply.result.get("isError") or "inputRequests" in reply.result
            assert len(reply.body) < 5000


async def test_a_retry_with_oversized_responses_is_refused(modern, subtests):
    for surplus in [{"requestState": LONG}, {"inputResponses": {f"k{number}": {} for number in range(50_000)}}]:
        with subtests.test(surplus=surplus):
            reply = await modern().tool("ask_name", **surplus)
            assert reply.refused(400, -32602)
            assert len(reply.body) < 1000


async def test_a_long_requested_version_is_not_repeated(modern):
    client = modern(server="modern")
    hello = {**client.introduction(), "protocolVersion": LONG}
    message = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello}
    reply = await client.post(message, routing={"mcp-protocol-version": None, "mcp-method": None})
    assert reply.error["code"] == -32022
    assert len(reply.body) < 1000


async def test_a_long_progress_token_is_refused(either, subtests):
    for length, fits in [(1024, True), (1025, False)]:
        with subtests.test(length=length, fits=fits):
            client = await either()
            reply = await client.tool("steps", {"count": 1}, meta={"progressToken": "t" * length})
            if fits:
                assert [params["progress"] for params in reply.notifications("notifications/progress")] == [1]
            else:
                assert reply.error["code"] == -32602
                assert "1024" in reply.error["message"]


async def test_a_uri_too_long_to_match_is_refused(either, subtests):
    for length, repeated in [(8192, True), (8193, False)]:
        with subtests.test(length=length, repeated=repeated):
            reply = await (await either()).request("resources/read", {"uri": "x://" + "u" * (length - 4)})
            assert ("data" in reply.error) is repeated
            assert repeated or (reply.error["code"] == -32602 and "8192" in reply.error["message"])


async def test_of_many_unknown_prompt_arguments_only_the_listed_ones_are_formatted(modern, monkeypatch):
    worded, unknown = [], messages.describe_unknown
    monkeypatch.setattr(messages, "describe_unknown", lambda name, *rest: worded.append(name) or unknown(name, *rest))
    arguments = {f"k{number}": "x" for number in range(1000)}
    reply = await modern().request("prompts/get", {"name": "welcome", "arguments": arguments})
    assert reply.refused(400, -32602)
    assert worded == ["k0", "k1", "k2", "k3", "k4"]


async def test_many_parameter_headers_are_read_once(modern, subtests):
    for count in [100_000]:
        with subtests.test(count=count):
            surplus = [(f"mcp-param-{number}", "x") for number in range(count)]
            begun = time.process_time()
            assert (await modern().tool("routed", {}, extra=surplus)).served
            assert (await modern().tool("routed", {}, extra=[("mcp-param-region", "x")] * count)).refused(400, -32020)
            assert time.process_time() - begun < SOON
