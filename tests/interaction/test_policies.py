"""Rules of the admin, as clients meet them: narrowed, hidden, slowed down, and at once."""

from typing import Any

import pytest
from asgiref.sync import sync_to_async

from mcp_django.models import ScopeGrant, ToolPolicy
from tests.interaction.test_permissions import names
from tests.interaction.test_subscriptions_listen import acknowledged, listen
from tests.interaction.transports import contract


@sync_to_async
def policy(tool: str, **asked: Any) -> ToolPolicy:
    return ToolPolicy.objects.create(tool=tool, **asked)


@sync_to_async
def grant(scope: str, **who: Any) -> ScopeGrant:
    return ScopeGrant.objects.create(scope=scope, **who)


async def answers(client: Any, hidden: str, unknown: str, arguments: dict[str, Any]) -> None:
    """Both tools answer alike, to the byte, but for the name."""
    first = await client.request("tools/call", {"name": hidden, "arguments": arguments}, id=1)
    second = await client.request("tools/call", {"name": unknown, "arguments": arguments}, id=1)
    assert first.verdict == second.verdict
    assert first.body.decode().replace(hidden, unknown) == second.body.decode()


@contract
async def test_a_disabled_tool_is_answered_as_an_unknown_one(either):
    clients = [await either(token=token) for token in ("alice", "root")]
    for client in clients:
        assert (await client.tool("add", {"a": 1, "b": 2})).served
    await policy("add", disabled=True)
    for client in clients:
        assert "add" not in await names(client, "tools/list", "tools")
        await answers(client, "add", "adx", {"a": 1, "b": 2})
        await answers(client, "add", "adx", {"a": "no number"})


async def test_a_deleted_policy_does_not_apply(either):
    client = await either(token="alice")
    row = await policy("add", disabled=True)
    assert "add" not in await names(client, "tools/list", "tools")
    await row.adelete()
    assert "add" in await names(client, "tools/list", "tools")
    assert (await client.tool("add", {"a": 1, "b": 2})).served


async def test_a_policy_of_another_server_does_not_apply(either):
    await policy("add", server="modern", disabled=True)
    assert (await (await either(token="alice")).tool("add", {"a": 1, "b": 2})).served


async def test_a_pattern_applies_to_all_matching_tools(either):
    await policy("add*", disabled=True)
    client = await either(token="alice")
    assert {"add", "add_in_a_thread"}.isdisjoint(await names(client, "tools/list", "tools"))
    assert (await client.tool("nothing")).served


async def test_scopes_of_a_policy_are_required_with_those_of_the_tool(either):
    await policy("scoped", scopes=["notes:admin"])
    client = await either(token="writer")
    assert "scoped" in await names(client, "tools/list", "tools")
    reply = await client.tool("scoped")
    wanted = ["notes:admin", "notes:read", "notes:write"]
    if reply.status is None:
        assert sorted(reply.error["data"]["requiredScopes"]) == wanted
        return
    assert reply.status == 403
    assert f'scope="{" ".join(wanted)}"' in reply.headers["www-authenticate"]


async def test_a_user_outside_the_groups_of_a_policy_does_not_see_the_tool(either):
    await policy("add", groups=["editors"])
    client = await either(token="root")
    assert "add" not in await names(client, "tools/list", "tools")
    await answers(client, "add", "adx", {"a": 1, "b": 2})


async def test_an_ungranted_scope_hides_its_tools_without_a_step_up(either):
    client = await either(token="writer")
    assert (await client.tool("scoped")).served
    await grant("notes:write", groups=["editors"])
    client = await either(token="writer")  # a channel ends when its credential is good for less
    assert "scoped" not in await names(client, "tools/list", "tools")
    await answers(client, "scoped", "scopex", {})


async def test_a_scope_is_available_to_the_clients_of_its_grant(either, subtests):
    for clients, held in [(["*"], True), (["https://*.example.com/*"], False)]:
        with subtests.test(clients=clients, held=held):
            granted = await grant("notes:write", clients=clients)
            client = await either(token="writer")  # whose client has no name
            assert (await client.tool("scoped")).served is held
            await granted.adelete()


async def test_calls_over_the_rate_are_errors_with_the_time_to_wait(either):
    await policy("add", rate="2/h")
    client = await either(token="alice")
    for _ in range(2):
        assert not (await client.tool("add", {"a": 1, "b": 2})).result.get("isError")
    refused = (await client.tool("add", {"a": 1, "b": 2})).result
    assert refused["isError"]
    assert "wait" in refused["content"][0]["text"]
    other = await either(token="bob")
    assert not (await other.tool("add", {"a": 1, "b": 2})).result.get("isError")


@pytest.mark.transports("asgi", "websocket")
async def test_a_changed_policy_sends_list_changed_to_subscribers(modern, django_capture_on_commit_callbacks):
    @sync_to_async
    def save() -> None:
        with django_capture_on_commit_callbacks(execute=True):
            ToolPolicy.objects.create(tool="add", disabled=True)

    exchange = listen(client := modern(token="alice"), toolsListChanged=True)
    await acknowledged(exchange)
    assert "add" in await names(client, "tools/list", "tools")
    await save()
    assert (await exchange.message())["method"] == "notifications/tools/list_changed"
    assert "add" not in await names(client, "tools/list", "tools")
