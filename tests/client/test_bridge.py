"""Several servers at once: one list of tools, the routing of calls, and servers that are down."""

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
from django.core.exceptions import ImproperlyConfigured
from django.test import override_settings

from mcp_django.client import (
    Bridge,
    CallError,
    Client,
    ClientConnectionError,
    ToolNotFound,
    aclose_clients,
    close_clients,
    get_client,
    tool_names,
)
from mcp_django.client.pool import factory
from mcp_django.client.session import timing
from mcp_django.client.tool_names import check_alias, get_alias, join_name
from tests.client.script import Script
from tests.support.clock import Clock
from tests.support.waiting import turns


def tool(name: str, **fields: Any) -> dict[str, Any]:
    return {"name": name, "inputSchema": {"type": "object", "properties": {"a": {"type": "integer"}}}, **fields}


def server(*names: str, era: str = "handshake") -> Script:
    """Build a server whose tools return the call."""

    def call(params: Any) -> Any:
        return {"content": [{"type": "text", "text": f"{params['name']} {params['arguments']}"}]}

    return Script(era, tools_list={"tools": [tool(name) for name in names]}, tools_call=call)


def down() -> Script:
    script = server("late")
    script.refusals.append(ClientConnectionError("It is down"))
    return script


def client(script: Script, **options: Any) -> Client:
    return Client(script, max_retries=0, **options)


class RegistryObserver:
    """A handler that records the tools of each server whose list changed."""

    def __init__(self, bridge: Bridge, clock: Clock) -> None:
        self.changes: asyncio.Queue[tuple[str, list[str]]] = asyncio.Queue()
        self.stop = bridge.on_registry(self.record)
        self._clock = clock

    async def record(self, alias: str, tools: list[Any], client: Client) -> None:
        self.changes.put_nowait((alias, [tool.name for tool in tools]))

    async def next(self) -> tuple[str, list[str]]:
        """Let time pass until a list has changed."""
        while self.changes.empty():
            await self._clock.advance(1)
        return self.changes.get_nowait()


async def test_a_server_whose_tools_change_whenever_they_are_listed_is_not_followed_at_once(clock: Clock) -> None:
    listed = 0

    async def page(params: Any) -> Any:
        nonlocal listed
        listed += 1
        await script.notify("notifications/tools/list_changed")
        return {"tools": [tool(f"t{listed}")]}

    script = Script("handshake", tools_list=page)
    async with Bridge({"one": client(script)}):
        await script.notify("notifications/tools/list_changed")
        await turns(2000)
        assert timing.UNDELAYED_REFRESHES < listed <= timing.UNDELAYED_REFRESHES + 3


async def test_the_tools_of_all_servers_are_one_list() -> None:
    weather, maps = server("now", "forecast"), server("now", era="stateless")
    async with Bridge({"weather": client(weather), "maps": client(maps)}) as bridge:
        assert bridge.tool_names() == ["weather__now", "weather__forecast", "maps__now"]
        assert [tool.name for tool in await bridge.list_tools()] == bridge.tool_names()
        assert (bridge.aliases, bridge.errors) == (["weather", "maps"], {})
        assert bridge.tool_schemas()[0] == {
            "name": "weather__now",
            "description": "",
            "input_schema": {"type": "object", "properties": {"a": {"type": "integer"}}},
        }
        result: Any = await bridge.call("maps__now", {"a": 1})
        assert result.content[0].text == "now {'a': 1}"
    assert (weather.methods().count("tools/call"), maps.methods().count("tools/call")) == (0, 1)


async def test_a_model_gets_no_tools_that_are_for_apps_alone() -> None:
    listed = [
        tool("show"),
        tool("save", _meta={"ui": {"visibility": ["app"]}}),
        tool("both", _meta={"ui": {"visibility": ["model", "app"]}}),
        tool("odd", _meta={"ui": "text"}),
    ]
    script = Script("handshake", tools_list={"tools": listed}, tools_call={"content": []})
    async with Bridge({"shop": script}) as bridge:
        assert [schema["name"] for schema in bridge.tool_schemas()] == ["shop__show", "shop__both", "shop__odd"]
        assert "shop__save" in bridge.tool_names()
        await bridge.call("shop__save", {})


async def test_targets_are_accepted_in_place_of_clients() -> None:
    async with Bridge({"weather": server("now")}) as bridge:
        assert bridge.tool_names() == ["weather__now"]
        assert bridge.client("weather").alias == "weather"


async def test_tools_may_have_separators_in_their_names(subtests: pytest.Subtests) -> None:
    for name in ["a__b", "__b", "_b", "a__", "a___b", "__"]:
        with subtests.test(name=name):
            async with Bridge({"x": server(name), "x-y": server(name)}) as bridge:
                result: Any = await bridge.call(f"x__{name}")
                assert result.content[0].text == f"{name} {{}}"
                assert get_alias(f"x-y__{name}") == "x-y"


async def test_a_name_without_a_server_is_an_unknown_tool(subtests: pytest.Subtests) -> None:
    for name in ["now", "weather", "weather_now", "weather__", "weather__other", "maps__now", "__now", ""]:
        with subtests.test(name=name):
            async with Bridge({"weather": server("now")}) as bridge:
                with pytest.raises(ToolNotFound, match="Unknown tool"):
                    await bridge.call(name)


def test_an_alias_that_is_no_prefix_is_refused(subtests: pytest.Subtests) -> None:
    for alias in ["Big", "a__b", "a_", "", "a b", "a" * 33]:
        with subtests.test(alias=alias):
            with pytest.raises(ValueError, match="is an invalid alias"):
                Bridge({alias: server()})
            with pytest.raises(ValueError, match="is an invalid alias"):
                check_alias(alias)


async def test_names_that_models_reject_are_changed_and_unique() -> None:
    names = ["files.read", "files/read", "über", "x" * 128, "x" * 127 + "y", "ok"]
    async with Bridge({"one": server(*names)}) as bridge:
        found = bridge.tool_names()
        assert len(set(found)) == len(names)
        assert found[-1] == "one__ok"
        for name, here in zip(names, found, strict=True):
            assert here == join_name("one", name)
            assert len(here) <= tool_names.MAX_NAME_LENGTH
            assert here.isascii()
            assert here.replace("_", "").replace("-", "").isalnum()
            result: Any = await bridge.call(here)
            assert result.content[0].text == f"{name} {{}}"


async def test_of_two_tools_with_one_name_the_first_wins() -> None:
    # The second has the name that the first gets here: a server that impersonates another.
    changed = join_name("one", "a.b")
    async with Bridge({"one": server("a.b", "a.b", changed.removeprefix("one__"))}) as bridge:
        assert bridge.tool_names() == [changed]


async def test_a_failing_server_does_not_hide_the_others() -> None:
    wrong = Script("handshake", tools_list=ValueError("never sent"))
    wrong.answers["tools/list"] = {"tools": "nonsense"}
    bridge = Bridge({"down": client(down()), "wrong": client(wrong), "up": client(server("now"))})
    errors = await bridge.connect_all()
    assert set(errors) == {"down", "wrong"}
    assert str(errors["down"]) == "It is down"
    assert isinstance(errors["wrong"], CallError)
    assert bridge.tool_names() == ["up__now"]
    with pytest.raises(ClientConnectionError, match="The server 'down' is not connected: It is down"):
        await bridge.call("down__late")
    await bridge.close()


async def test_servers_are_connected_concurrently() -> None:
    both = asyncio.Barrier(2)

    async def slow(params: Any) -> Any:
        await both.wait()
        return {"tools": []}

    async with Bridge({"one": Script(tools_list=slow), "two": Script(tools_list=slow)}) as bridge:
        assert bridge.errors == {}


async def test_a_server_that_is_down_is_retried_until_it_is_up(clock: Clock) -> None:
    script = down()
    script.refusals *= 3
    bridge = Bridge({"one": client(script)})
    told = RegistryObserver(bridge, clock)
    await bridge.connect_all()
    assert list(bridge.errors) == ["one"]
    assert await told.next() == ("one", ["one__late"])
    assert (bridge.errors, bridge.tool_names()) == ({}, ["one__late"])
    assert script.opened == 4
    await bridge.close()


async def test_a_server_that_disconnects_keeps_its_tools_and_reconnects(clock: Clock) -> None:
    script = server("now")
    bridge = Bridge({"one": Client(script, max_retries=0)})
    await bridge.connect_all()
    told = RegistryObserver(bridge, clock)
    await bridge.client("one").disconnect()
    script.refusals.append(ClientConnectionError("It is down"))
    with pytest.raises(ClientConnectionError, match="It is down"):
        await bridge.call("one__now")
    assert list(bridge.errors) == ["one"]
    assert bridge.tool_names() == ["one__now"]
    script.answers["tools/list"] = {"tools": [tool("now"), tool("new")]}
    while bridge.errors:
        assert (await told.next())[0] == "one"
    assert bridge.tool_names() == ["one__now", "one__new"]
    assert (await bridge.call("one__new")).content
    await bridge.close()


async def test_a_changed_list_is_read_again_and_announced(clock: Clock) -> None:
    script = server("now")
    async with Bridge({"one": client(script), "two": client(server("now"))}) as bridge:
        told = RegistryObserver(bridge, clock)
        script.answers["tools/list"] = {"tools": [tool("now"), tool("new")]}
        await script.notify("notifications/tools/list_changed")
        assert await told.next() == ("one", ["one__now", "one__new"])
        assert bridge.tool_names() == ["one__now", "one__new", "two__now"]
        told.stop()
        script.answers["tools/list"] = {"tools": []}
        again = RegistryObserver(bridge, clock)
        await script.notify("notifications/tools/list_changed")
        assert await again.next() == ("one", [])
        assert told.changes.empty()


async def test_a_list_that_changes_while_it_is_read_is_read_again(clock: Clock) -> None:
    script, reading, gate = server("now"), asyncio.Event(), asyncio.Event()

    async def slow(params: Any) -> Any:
        reading.set()
        await gate.wait()
        return {"tools": [tool("now"), tool("new")]}

    async with Bridge({"one": client(script)}) as bridge:
        heard = asyncio.Event()
        bridge.client("one").on_list_changed(lambda kind: heard.set() if reading.is_set() else None)
        told = RegistryObserver(bridge, clock)
        script.answers["tools/list"] = slow
        await script.notify("notifications/tools/list_changed")
        await reading.wait()
        script.answers["tools/list"] = {"tools": [tool("newest")]}
        await script.notify("notifications/tools/list_changed")
        await heard.wait()
        gate.set()
        assert await told.next() == ("one", ["one__now", "one__new"])
        assert await told.next() == ("one", ["one__newest"])


async def test_failing_handlers_affect_nothing_else() -> None:
    def fails(*args: Any) -> None:
        raise RuntimeError("a bug")

    bridge = Bridge({"one": client(server("now")), "two": client(server("now"))}, tools={"one": fails})
    bridge.on_registry(fails)
    await bridge.connect_all()
    assert list(bridge.errors) == ["one"]
    assert bridge.tool_names() == ["two__now"]
    await bridge.close()


NAMES = ["get_a", "get_b", "set_a"]


async def test_filters_select_the_tools(subtests: pytest.Subtests) -> None:
    for tools, expected in [
        (None, ["one__get_a", "one__get_b", "one__set_a", "two__get_a", "two__get_b", "two__set_a"]),
        (["get_*"], ["one__get_a", "one__get_b", "two__get_a", "two__get_b"]),
        (lambda tool: tool.name == "set_a", ["one__set_a", "two__set_a"]),
        ({"one": ["set_a"]}, ["one__set_a", "two__get_a", "two__get_b", "two__set_a"]),
        ({"one": [], "two": lambda tool: False}, []),
        ({"two": ["GET_A", "get_[b]"]}, ["one__get_a", "one__get_b", "one__set_a", "two__get_b"]),
    ]:
        with subtests.test(tools=tools, expected=expected):
            async with Bridge({"one": server(*NAMES), "two": server(*NAMES)}, tools=tools) as bridge:
                assert bridge.tool_names() == expected
                for alias in ("one", "two"):
                    for name in NAMES:
                        if f"{alias}__{name}" not in expected:
                            with pytest.raises(ToolNotFound):
                                await bridge.call(f"{alias}__{name}")


def test_a_filter_of_no_server_and_a_bare_name_are_refused() -> None:
    with pytest.raises(ValueError, match="contains 'two', unknown to this bridge"):
        Bridge({"one": server()}, tools={"two": ["a"]})
    with pytest.raises(ValueError, match=r"write \['get_a'\]"):
        Bridge({"one": server()}, tools="get_a")


async def test_the_bridge_closes_only_clients_that_it_connected() -> None:
    mine, other = client(server("now")), client(server("now"))
    await other.connect()
    bridge = Bridge({"mine": mine, "other": other})
    async with bridge:
        assert mine.is_connected
    assert (mine.is_connected, other.is_connected) == (False, True)
    assert bridge.tool_names() == []
    async with bridge:
        assert bridge.tool_names() == ["mine__now", "other__now"]
    await other.close()


async def test_a_slow_server_does_not_delay_the_close(clock: Clock) -> None:
    """The bridge retries the server while it closes."""
    script, trying = down(), asyncio.Event()

    async def slow(params: Any) -> Any:
        trying.set()
        await asyncio.Event().wait()

    script.answers["server/discover"] = script.answers["initialize"] = slow
    async with Bridge({"one": client(script)}):
        await clock.advance(1)
        assert trying.is_set()


async def test_no_task_outlives_the_bridge() -> None:
    script = down()
    script.refusals *= 1000
    before = asyncio.all_tasks()
    async with Bridge({"one": client(script)}):
        pass
    opened = script.opened
    assert asyncio.all_tasks() == before
    assert script.opened == opened


async def test_progress_and_time_are_those_of_the_call() -> None:
    seen = []
    script = server("now")

    def call(params: Any) -> Any:
        seen.append(params)
        return {"content": []}

    script.answers["tools/call"] = call
    async with Bridge({"one": client(script)}) as bridge:
        await bridge.call("one__now", {"a": 1}, meta={"shop/x": 1}, on_progress=print, timeout=5)
    assert seen[0]["_meta"]["shop/x"] == 1
    assert "progressToken" in seen[0]["_meta"]


@pytest.fixture
def configured(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, Script]]:
    """Configure two servers in the setting."""
    scripts = {"one": server(*NAMES), "two": server(*NAMES)}
    monkeypatch.setattr(factory, "create_target", lambda settings, user: scripts[settings.alias])
    entries = {"one": {"URL": "https://one.example", "TOOLS": ["get_*"]}, "two": {"URL": "https://two.example"}}
    with override_settings(MCP={"CLIENTS": entries}):
        yield scripts
        close_clients()


async def test_servers_of_the_setting_are_bridged_with_its_filters(configured: dict[str, Script]) -> None:
    async with Bridge.from_settings(tools=["*_a"]) as bridge:
        assert bridge.tool_names() == ["one__get_a", "two__get_a", "two__set_a"]
        assert bridge.client("one") is get_client("one")
    # The bridge does not own it, and so does not close it.
    assert get_client("one").is_connected
    async with Bridge.from_settings(["two"]) as bridge:
        assert bridge.aliases == ["two"]
    await aclose_clients()


def test_a_server_that_is_not_in_the_setting_is_refused(configured: dict[str, Script]) -> None:
    with pytest.raises(ImproperlyConfigured, match="has no 'three'; it has: one, two"):
        Bridge.from_settings(["one", "three"])


def test_a_bridge_blocks_without_an_event_loop(configured: dict[str, Script]) -> None:
    with Bridge.from_settings().blocking() as bridge:
        assert [tool.name for tool in bridge.list_tools()] == bridge.tool_names()
        assert len(bridge.tool_schemas()) == 5
        assert bridge.aliases == ["one", "two"]
        result: Any = bridge.call("one__get_a", {"a": 1})
        assert result.content[0].text == "get_a {'a': 1}"
        assert bridge.errors == {}
    assert bridge.tool_names() == []
