"""Digests of the lists that a session read, and stale lists."""

import gc
from collections.abc import Mapping
from typing import Any

from mcp_django import Server
from mcp_django.protocol import jsonrpc
from mcp_django.protocol.revisions import Era
from mcp_django.server.calls.call import Connection
from mcp_django.server.calls.message_queue import Outbox
from mcp_django.server.calls.session import ServerSession
from mcp_django.server.composition.provider import Provider
from mcp_django.server.execution.lists import TOOLS

from .client import HANDSHAKE, STATELESS, PipelineClient, make_principal, make_server, ports


class Memory:
    """Rows that outlive a server."""

    def __init__(self) -> None:
        self.lists: dict[str, str] = {}
        self.writes = 0

    def save(self, session: ServerSession) -> None:
        self.writes += 1
        self.lists |= session.list_digests

    async def load(self, session: ServerSession) -> Mapping[str, str]:
        return self.lists


class Catalogue(Provider):
    """Tools that come and go."""

    offers = frozenset({"tools"})

    def __init__(self, *names: str) -> None:
        self.names = names

    async def tools(self, ctx: Any) -> Any:
        server = Server("shelf")
        for name in self.names:
            server.tool(lambda: "", name=name)
        return list(server.registry.tools)


def release(memory: Memory, *names: str, **given: Any) -> Server:
    """A server with these tools, as a deploy brings it."""
    server = make_server(**given).bind(ports(list_digests=memory))
    for name in names:
        server.tool(lambda: "", name=name, description=f"The tool {name}")
    server.resource("a:b")(lambda: "")
    return server


def client(server: Server, **given: Any) -> PipelineClient:
    return PipelineClient(server, version=HANDSHAKE, **given)


def serve_list(peer: PipelineClient) -> Any:
    """Serve the first page of `tools/list` to a session; it may be a coroutine."""
    connection = Connection(peer.principal, session=peer.session)
    era = peer.pipeline.eras[Era.HANDSHAKE]
    call = era.create_call(jsonrpc.Request(1, "tools/list", None), connection, Outbox())
    return peer.server.listings.serve_page(call, TOOLS)


async def find_stale_lists(peer: PipelineClient) -> list[str]:
    """Return the kinds of lists that a new stream would report as changed."""
    connection = Connection(peer.principal, session=peer.session)
    era = peer.pipeline.eras[Era.HANDSHAKE]
    call = era.create_call(jsonrpc.Notification("notifications/initialized", None), connection, Outbox())
    return await peer.server.listings.find_stale(call)


async def test_a_release_with_other_tools_makes_the_list_of_tools_stale() -> None:
    memory = Memory()
    old = client(release(memory, "one"))
    assert await old.names() == ["one"]
    await old.request("resources/list")
    assert await find_stale_lists(old) == []
    new = client(release(memory, "one", "two"))
    assert await find_stale_lists(new) == ["tools"]
    await new.names()
    assert await find_stale_lists(new) == []


async def test_an_unlisted_list_is_never_stale() -> None:
    memory = Memory()
    old = client(release(memory, "one"))
    await old.request("resources/list")
    assert await find_stale_lists(client(release(memory, "one", "two"))) == []


async def test_the_same_release_in_another_process_is_not_a_change() -> None:
    memory = Memory()
    await client(release(memory, "one")).names()
    assert await find_stale_lists(client(release(memory, "one"))) == []


async def test_templates_count_as_resources() -> None:
    memory = Memory()
    old = client(release(memory))
    await old.request("resources/templates/list")
    await old.request("resources/list")
    server = release(memory)
    server.resource("a:{b}")(lambda b: b)
    assert await find_stale_lists(client(server)) == ["resources"]


async def test_unrequested_pages_count() -> None:
    memory = Memory()
    paged = {"options": {"page_size": 1}}
    await client(release(memory, "one", "two", **paged)).request("tools/list")
    assert await find_stale_lists(client(release(memory, "one", "three", **paged))) == ["tools"]


async def test_entries_of_providers_count() -> None:
    memory = Memory()
    await client(release(memory, "one", providers=[Catalogue("x")])).names()
    assert await find_stale_lists(client(release(memory, "one", providers=[Catalogue("x")]))) == []
    assert await find_stale_lists(client(release(memory, "one", providers=[Catalogue("x", "y")]))) == ["tools"]


async def test_a_permission_that_was_granted_makes_the_list_stale() -> None:
    memory = Memory()
    server = release(memory, "one")
    server.tool(lambda: "", name="guarded", permission="shop.view_order")
    await client(server, principal=make_principal()).names()
    assert await find_stale_lists(client(server, principal=make_principal())) == []
    assert await find_stale_lists(client(server, principal=make_principal("shop.view_order"))) == ["tools"]


async def test_the_same_list_is_written_once() -> None:
    memory = Memory()
    peer = client(release(memory, "one"))
    for _ in range(3):
        await peer.names()
    assert memory.writes == 1


async def test_requests_without_a_session_are_not_recorded() -> None:
    memory = Memory()
    await PipelineClient(release(memory, "one"), version=STATELESS).names()
    assert memory.writes == 0


async def test_a_refused_list_leaves_no_coroutine() -> None:
    server = release(Memory(), "one", providers=[Catalogue("two")])
    given = serve_list(client(server))
    # A coroutine that is never awaited is a warning when it is freed, and a warning is an error in these tests.
    given.close()
    del given
    gc.collect()
