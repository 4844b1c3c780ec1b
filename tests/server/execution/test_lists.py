"""Lists: pages, cached encodings, and their invalidation."""

from typing import Any

import pytest

from mcp_django.auth.authorization.policy import Policy
from mcp_django.protocol.errors import InvalidParams
from mcp_django.server.execution import lists as listing
from mcp_django.server.execution.lists import CURSOR_TTL_SECONDS, PrimitiveLists
from mcp_django.server.server import Server
from tests.server.client import HANDSHAKE, STATELESS, PipelineClient, make_principal, make_server, ports
from tests.support.clock import Clock

OLDEST = "2024-11-05"


@pytest.fixture
def encoded(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The lists that were encoded, one entry each time."""
    found: list[str] = []
    encode = PrimitiveLists._encode_page

    def counted(self: Any, call: Any, kind: Any, *args: Any, **kwargs: Any) -> Any:
        found.append(kind.collection)
        return encode(self, call, kind, *args, **kwargs)

    monkeypatch.setattr(PrimitiveLists, "_encode_page", counted)
    return found


def with_tools(*names: str, **options: Any) -> Server:
    server = make_server(options=options)
    for name in names:
        server.tool(lambda: "x", name=name, title=name.upper())
    return server


async def all_pages(peer: PipelineClient) -> list[list[str]]:
    """The names on each page, to the last."""
    pages, params = [], {}
    while True:
        page = await peer.request("tools/list", params)
        pages.append([tool["name"] for tool in page["tools"]])
        if "nextCursor" not in page:
            return pages
        params = {"cursor": page["nextCursor"]}


async def test_pages_have_the_size_that_was_set() -> None:
    found = {
        size: await all_pages(PipelineClient(with_tools("c", "a", "b", page_size=size))) for size in (1, 2, 3, None)
    }
    one_page = [["a", "b", "c"]]
    assert found == {1: [["a"], ["b"], ["c"]], 2: [["a", "b"], ["c"]], 3: one_page, None: one_page}


async def test_an_empty_list_is_one_page() -> None:
    server = with_tools("a", page_size=None)
    server.registry.tools.remove("a")
    server.set_options(capabilities={"tools": {}})
    assert await all_pages(PipelineClient(server)) == [[]]


async def test_a_public_list_is_encoded_once(encoded: list[str]) -> None:
    server = with_tools("a", "b")
    for principal in (make_principal(), make_principal("x.y", name="other")):
        assert await PipelineClient(server, principal).names() == ["a", "b"]
    assert encoded == ["tools"]


async def test_every_revision_and_page_is_cached_separately(encoded: list[str]) -> None:
    server = with_tools("a", "b", page_size=1)
    titles = []
    for _ in range(2):
        for version in (OLDEST, HANDSHAKE, STATELESS):
            peer = PipelineClient(server, version=version)
            assert await all_pages(peer) == [["a"], ["b"]]
            titles.append("title" in (await peer.request("tools/list"))["tools"][0])
    assert len(encoded) == 6
    assert titles == [False, True, True] * 2


async def test_a_tool_added_while_the_server_runs_is_listed_and_served(encoded: list[str]) -> None:
    server = with_tools("b")
    peer = PipelineClient(server)
    assert await peer.names() == ["b"]
    server.tool(lambda: "new", name="a")
    assert await peer.names() == ["a", "b"]
    assert await peer.text("a") == "new"
    assert encoded == ["tools", "tools"]


async def test_a_tool_removed_while_the_server_runs_is_unknown() -> None:
    server = with_tools("a", "b")
    peer = PipelineClient(server)
    assert await peer.names() == ["a", "b"]
    server.registry.tools.remove("a")
    assert await peer.names() == ["b"]
    with pytest.raises(InvalidParams, match="Unknown tool: a"):
        await peer.call("a")


async def test_a_cursor_is_valid_after_its_last_entry_was_removed() -> None:
    server = with_tools("a", "b", "c", page_size=2)
    peer = PipelineClient(server)
    first = await peer.request("tools/list")
    server.registry.tools.remove("b")
    second = await peer.request("tools/list", {"cursor": first["nextCursor"]})
    assert [tool["name"] for tool in second["tools"]] == ["c"]


async def test_a_guarded_list_is_encoded_once_for_each_set_of_visible_tools(encoded: list[str]) -> None:
    server = with_tools("open")
    server.tool(lambda: "x", name="one", permission="a.one")
    server.tool(lambda: "x", name="two", permission="a.two")
    seen = {
        (): ["open"],
        ("a.one",): ["one", "open"],
        ("a.two",): ["open", "two"],
        ("a.one", "a.two"): ["one", "open", "two"],
    }
    for _ in range(2):
        for held, names in seen.items():
            assert await PipelineClient(server, make_principal(*held, name=str(held))).names() == names
    assert len(encoded) == len(seen)


async def test_a_tool_that_becomes_guarded_is_hidden_from_then_on() -> None:
    server = with_tools("a", "b")
    peer = PipelineClient(server, make_principal())
    assert await peer.names() == ["a", "b"]
    server.registry.tools.remove("a")
    server.tool(lambda: "x", name="a", permission="x.y")
    assert await peer.names() == ["b"]


async def test_pages_of_a_guarded_list_are_cut_after_filtering() -> None:
    server = with_tools("a", "c", "e", page_size=2)
    for name in ("b", "d"):
        server.tool(lambda: "x", name=name, permission="x.y")
    assert await all_pages(PipelineClient(server, make_principal())) == [["a", "c"], ["e"]]
    assert await all_pages(PipelineClient(server, make_principal("x.y"))) == [["a", "b"], ["c", "d"], ["e"]]


async def test_a_tool_added_during_permission_checks_is_not_listed() -> None:
    class Slow(Policy):
        """Registers another guarded tool while it is asked."""

        async def find_hidden_keys(self, principal: Any, primitives: Any) -> frozenset[str]:
            found = await super().find_hidden_keys(principal, primitives)
            if "late" not in server.registry.tools:
                server.tool(lambda: "x", name="late", permission="x.y")
            return found

    outside = ports()
    server = with_tools("open").bind(ports(authorizer=Slow(outside.executor)))
    server.tool(lambda: "x", name="early", permission="x.y")
    assert await PipelineClient(server, make_principal()).names() == ["open"]


async def test_a_list_that_depends_on_the_caller_is_private() -> None:
    for guarded, private, scope in [(False, False, "public"), (True, False, "private"), (False, True, "private")]:
        server = with_tools("a", private_lists=private, cache_ttl=7.5)
        if guarded:
            server.tool(lambda: "x", name="b", permission="x.y")
        page = await PipelineClient(server).request("tools/list")
        assert (page["cacheScope"], page["ttlMs"]) == (scope, 7500), (guarded, private)


async def test_the_number_of_cached_pages_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listing, "MAX_CACHED_PAGES", 5)
    server = with_tools("a")
    peer = PipelineClient(server, version=HANDSHAKE)
    for number in range(12):
        server.registry.tools.remove(f"t{number - 1}")
        server.tool(lambda: "x", name=f"t{number}")
        assert await peer.names() == ["a", f"t{number}"]
    assert len(server.listings._pages) == 5


async def test_options_changed_in_place_take_effect_at_once() -> None:
    server = with_tools("a", "b")
    peer = PipelineClient(server)
    assert "nextCursor" not in await peer.request("tools/list")
    server.set_options(page_size=1)
    assert "nextCursor" in await peer.request("tools/list")


async def test_a_server_that_is_bound_again_uses_its_new_ports() -> None:
    server = with_tools("a", page_size=1)
    server.tool(lambda: "x", name="b", permission="x.y")
    peer = PipelineClient(server, make_principal())
    assert await all_pages(peer) == [["a"]]

    class Open(Policy):
        async def find_hidden_keys(self, principal: Any, primitives: Any) -> frozenset[str]:
            return frozenset()

    server.bind(ports(authorizer=Open(ports().executor)))
    assert await all_pages(peer) == [["a"], ["b"]]


async def test_other_lists_are_cached_and_invalidated(encoded: list[str]) -> None:
    server = make_server()
    server.prompt(lambda: "x", name="b")
    server.resource("test://b")(lambda: "x")
    server.resource("test://b/{n}")(lambda n: n)
    peer = PipelineClient(server)
    lists = [
        ("prompts/list", "prompts", "name"),
        ("resources/list", "resources", "uri"),
        ("resources/templates/list", "resourceTemplates", "uriTemplate"),
    ]
    for _ in range(2):
        assert [await peer.names(*each) for each in lists] == [["b"], ["test://b"], ["test://b/{n}"]]
    assert len(encoded) == 3
    server.prompt(lambda: "x", name="a")
    server.resource("test://a")(lambda: "x")
    server.resource("test://a/{n}")(lambda n: n)
    found = [await peer.names(*each) for each in lists]
    assert found == [["a", "b"], ["test://a", "test://b"], ["test://a/{n}", "test://b/{n}"]]


def with_guarded_tools() -> Server:
    server = make_server(options={"page_size": 2})
    for name in "abcd":
        server.tool(lambda: "x", name=name, permission=f"shop.{name}")
    return server


async def second_page(peer: PipelineClient, cursor: str) -> list[str]:
    return [tool["name"] for tool in (await peer.request("tools/list", {"cursor": cursor}))["tools"]]


async def test_a_cursor_of_a_private_list_belongs_to_the_caller() -> None:
    server, everything = with_guarded_tools(), [f"shop.{name}" for name in "abcd"]
    ada, bob = (PipelineClient(server, principal=make_principal(*everything, name=name)) for name in ("ada", "bob"))
    cursors = [(await peer.request("tools/list"))["nextCursor"] for peer in (ada, bob, ada)]
    assert await second_page(ada, cursors[0]) == await second_page(ada, cursors[2]) == ["c", "d"]
    assert await second_page(bob, cursors[1]) == ["c", "d"]
    for peer, cursor in ((bob, cursors[0]), (ada, cursors[1])):
        with pytest.raises(InvalidParams, match="Invalid or expired cursor"):
            await second_page(peer, cursor)


async def test_a_list_of_one_page_is_cached_for_callers_with_the_same_entries(encoded: list[str]) -> None:
    server = with_guarded_tools().set_options(page_size=10)
    for name in ("ada", "bob"):
        await PipelineClient(server, principal=make_principal("shop.a", name=name)).request("tools/list")
    assert encoded == ["tools"]


async def test_a_cursor_of_another_server_is_refused() -> None:
    here, there = with_tools("a", "b", page_size=1), with_tools("a", "b", page_size=1)
    there.alias = "there"
    cursor = (await PipelineClient(there).request("tools/list"))["nextCursor"]
    with pytest.raises(InvalidParams, match="Invalid or expired cursor"):
        await second_page(PipelineClient(here), cursor)


async def test_a_cursor_expires(clock: Clock) -> None:
    peer = PipelineClient(with_tools("a", "b", page_size=1))
    cursor = (await peer.request("tools/list"))["nextCursor"]
    clock.move(CURSOR_TTL_SECONDS - 1)
    await second_page(peer, cursor)
    clock.move(2)
    with pytest.raises(InvalidParams, match="Invalid or expired cursor"):
        await second_page(peer, cursor)
