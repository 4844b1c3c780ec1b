"""Whose call it is: set once, in the server's middleware, it is known everywhere in the call and nowhere else."""

import asyncio

import pytest

from tests.interaction.clients import HANDSHAKE, STATELESS, Client, accept
from tests.interaction.tenants import CALLS, TENANT
from tests.interaction.transports import contract_with_headers, on_http

pytestmark = pytest.mark.revisions(HANDSHAKE[-1], STATELESS)


class Guest(Client):
    """A client of one tenant."""

    tenant, floor = "acme", 7

    def path(self):
        return f"{self.transport.prefix}/mcp/tenants/{self.tenant}/{self.floor}"


@pytest.fixture
def guest(transport, revision):
    """`await guest("acme")`: a client of a tenant's, of every revision, through both transports."""

    async def connect(tenant="acme"):
        client = Guest(transport, revision, server="tenants")
        client.tenant = tenant
        return await client.open()

    return connect


@contract_with_headers
async def test_a_tenant_reaches_async_handlers_and_dependencies(guest):
    reply = await (await guest()).tool("tenant")
    text = [block["text"] for block in reply.result["content"]]
    assert text == ['["acme","acme","acme","acme",7]']


async def test_a_tenant_reaches_handlers_in_threads(guest):
    reply = await (await guest()).tool("tenant_in_a_thread")
    assert reply.result["content"][0]["text"] == "acme"


async def test_a_tenant_reaches_resources_prompts_and_completions(guest):
    client = await guest()
    assert (await client.request("resources/read", {"uri": "tenant://me"})).result["contents"][0]["text"] == "acme"
    prompt = await client.request("prompts/get", {"name": "greet", "arguments": {"name": "x"}})
    assert prompt.result["messages"][0]["content"]["text"] == "acme"
    about = {"ref": {"type": "ref/prompt", "name": "greet"}, "argument": {"name": "name", "value": ""}}
    completed = await client.request("completion/complete", about)
    assert completed.result["completion"]["values"] == ["acme"]


async def test_a_tenant_reaches_providers(guest):
    acme, other = await guest(), await guest("other")
    for client, tenant in ((acme, "acme"), (other, "other")):
        listed = {tool["name"] for tool in (await client.request("tools/list")).result["tools"]}
        assert {name for name in listed if name.startswith("room")} == {f"room_{tenant}"}
    reply = await acme.tool("room_acme")
    assert reply.result["content"][0]["text"] == "room_acme of acme"
    assert (await other.request("tools/call", {"name": "room_acme", "arguments": {}})).error["code"] == -32602


async def test_a_tenant_is_the_same_after_a_question(guest):
    client = await guest()
    if client.revision < "2025-06-18":
        pytest.skip("this revision has no questions")
    reply = await client.ask_tool("ask_tenant", {}, lambda method, params: accept())
    assert reply.result["content"][0]["text"] == "acme"


async def test_a_tenant_is_set_for_notifications_and_the_handshake(guest):
    CALLS.clear()
    client = await guest()
    await client.notify("notifications/initialized")
    methods = {"server/discover"} if client.stateless else {"initialize"}
    assert {*methods, "notifications/initialized"} <= {method for method, _, _ in CALLS}
    assert {tenant for _, tenant, _ in CALLS} == {"acme"}


@on_http
async def test_middleware_gets_a_notification_in_the_language_of_the_client(settings, guest):
    settings.MIDDLEWARE, settings.LANGUAGE_CODE = ["django.middleware.locale.LocaleMiddleware"], "en"
    client = await guest()
    CALLS.clear()
    await client.notify("notifications/cancelled", {"requestId": 1}, headers={"accept-language": "de"})
    await client.notify("notifications/cancelled", {"requestId": 1})
    assert [language for _, _, language in CALLS] == ["de", "en"]


@contract_with_headers
async def test_concurrent_calls_of_tenants_are_isolated(guest):
    clients = [await guest(f"t{number}") for number in range(5)]
    replies = await asyncio.gather(*(client.tool("tenant_in_a_thread") for client in clients * 4))
    assert [reply.result["content"][0]["text"] for reply in replies] == [f"t{number}" for number in range(5)] * 4
    assert TENANT.get() == "nobody"


@on_http
async def test_a_header_or_the_request_may_name_the_tenant(guest, subtests):
    for how in [{"headers": {"x-tenant": "other"}}, {"query_string": b"tenant=other"}]:
        with subtests.test(how=how):
            reply = await (await guest()).tool("tenant_in_a_thread", **how)
            assert reply.result["content"][0]["text"] == "other"


@pytest.mark.transports("asgi", "view", "websocket")
async def test_middleware_may_refuse_a_tenant(transport):
    client = Guest(transport, "2026-07-28", server="tenants")
    client.tenant = "closed"
    assert (await client.tool("tenant")).error["message"] == "This tenant is closed"
