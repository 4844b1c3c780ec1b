"""Habits of clients that differ from the protocol, over eras and transports."""

import inspect

from mcp_django.protocol import client_habits
from mcp_django.protocol.client_habits import ADDED_ARGUMENTS, NULL_MEMBERS
from mcp_django.protocol.revisions import REVISIONS
from tests.interaction.transports import contract

LISTS = ("tools/list", "resources/list", "resources/templates/list", "prompts/list")


@contract
async def test_null_is_served_as_an_absent_member(connect):
    client = await connect()
    for method in LISTS:
        assert (await client.request(method, {"cursor": None})).served
    reply = await client.request("tools/call", {"name": "nothing", "arguments": None})
    assert reply.result["content"] == []
    reply = await client.request("tools/call", {"name": "nothing", "arguments": {}}, meta={"progressToken": None})
    assert reply.result["content"] == []
    for method in NULL_MEMBERS:
        params = dict.fromkeys(NULL_MEMBERS[method] - {"_meta"})
        assert "null" not in str((await client.request(method, params)).message).lower()


@contract
async def test_arguments_that_hosts_add_are_removed(connect):
    client = await connect()
    for name in sorted(ADDED_ARGUMENTS):
        reply = await client.tool("add", {"a": 2, "b": 3, name: "call_1"})
        assert reply.result["content"] == [{"type": "text", "text": "5"}]
    reply = await client.request("tools/call", {"name": "add", "arguments": {"a": 2, "b": 3}, "toolCallId": "call_1"})
    assert reply.result["content"] == [{"type": "text", "text": "5"}]


async def test_null_for_meta_is_served_in_the_handshake_era(legacy):
    client = await legacy()
    reply = await client.post({"jsonrpc": "2.0", "id": 7, "method": "tools/list", "params": {"_meta": None}})
    assert reply.served
    reply = await client.post({"jsonrpc": "2.0", "id": 8, "method": "tools/list", "params": None})
    assert reply.served


async def test_other_values_of_a_tolerated_member_are_refused(either, subtests):
    client = await either()
    refused = [
        ("tools/list", {"cursor": False}),
        ("tools/list", {"cursor": ""}),
        ("tools/call", {"name": "nothing", "arguments": []}),
        ("tools/call", {"name": None, "arguments": {}}),
        ("resources/read", {"uri": None}),
    ]
    for method, params in refused:
        with subtests.test(method=method, params=params):
            assert (await client.request(method, params)).error["code"] == -32602
    assert "unknown argument 'call_id'" in str((await client.tool("add", {"a": 1, "b": 2, "call_id": "x"})).message)


def test_each_tolerated_habit_has_a_known_method_and_a_source():
    methods = frozenset().union(*(revision.methods for revision in REVISIONS.values()))
    assert set(NULL_MEMBERS) <= methods
    source = inspect.getsource(client_habits)
    assert all(f'"{name}",  # ' in source for name in ADDED_ARGUMENTS)
