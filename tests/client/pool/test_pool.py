"""The client pool of a process: its keys, its lifetimes, and failed clients."""

import asyncio
import gc
import os
import sys
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from django.core.exceptions import ImproperlyConfigured
from django.test import override_settings

from mcp_django.client import (
    AuthorizationNeeded,
    Client,
    ClientConnectionError,
    aclose_clients,
    close_clients,
    get_client,
)
from mcp_django.client.pool import factory, pool
from mcp_django.client.pool.health import HEALTH_REGISTRY
from mcp_django.signals import clients_used
from mcp_django.wiring import get_services
from tests.client.script import Script
from tests.support.clock import Clock

URL = "https://one.example/mcp"
DONE = {"content": [{"type": "text", "text": "done"}]}
TOOLS = {"tools": [{"name": "add", "inputSchema": {"type": "object"}}]}
PROGRAM = """
import json, sys
for line in sys.stdin:
    asked = json.loads(line)
    if "id" not in asked:
        continue
    answer = {"jsonrpc": "2.0", "id": asked["id"]}
    if asked["method"] == "initialize":
        version = asked["params"]["protocolVersion"]
        info = {"name": "program", "version": "1"}
        answer["result"] = {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": info}
    elif asked["method"] == "tools/call":
        import os
        answer["result"] = {"content": [{"type": "text", "text": str(os.getpid())}]}
    else:
        answer["error"] = {"code": -32601, "message": "no"}
    print(json.dumps(answer), flush=True)
"""


class Scripts:
    """Servers in memory: one for each client."""

    def __init__(self) -> None:
        self._made: dict[tuple[str, Any], list[Script]] = {}
        self._claimed: list[Script] = []

    def __getitem__(self, alias: str) -> Script:
        """Return the server of the first client of an alias."""
        return self.of(alias, None)

    def of(self, alias: str, user: Any) -> Script:
        """Return the server of the first client of a user."""
        made = self._made.setdefault((alias, getattr(user, "pk", None)), [])
        return made[0] if made else self._make(made)

    def target_of(self, settings: Any, user: Any) -> Script:
        first = self.of(settings.alias, user if settings.per_user else None)
        made = self._made[settings.alias, user.pk if settings.per_user else None]
        script = self._make(made) if first in self._claimed else first
        self._claimed.append(script)
        return script

    def _make(self, made: list[Script]) -> Script:
        made.append(Script("stateless", tools_call=DONE, tools_list=TOOLS))
        return made[-1]


@pytest.fixture
def scripts(monkeypatch: pytest.MonkeyPatch) -> Iterator[Scripts]:
    """Replace the servers of the aliases."""
    found = Scripts()
    monkeypatch.setattr(factory, "create_target", found.target_of)
    yield found
    close_clients()
    HEALTH_REGISTRY.reset_after_fork()


def clients(**entries: Any) -> Any:
    return override_settings(MCP={"CLIENTS": {alias: {"URL": URL, **entry} for alias, entry in entries.items()}})


@pytest.fixture(autouse=True)
def _one() -> Iterator[None]:
    with clients(one={"MAX_RETRIES": 0}, two={}):
        yield


def kept() -> int:
    return len(pool._POOL._clients_by_key)


async def disconnected(client: Client) -> None:
    """Wait until its connection is closed."""
    task = client._manager._task
    assert task is not None
    await asyncio.wait({task})


async def test_an_alias_has_one_client_that_connects_at_its_first_call(scripts: Scripts) -> None:
    client = get_client("one")
    assert get_client("one") is client
    assert get_client("two") is not client
    assert (client.alias, client.is_connected, scripts["one"].opened) == ("one", False, 0)
    await client.call_tool("add")
    assert (client.is_connected, scripts["one"].opened) == (True, 1)


async def test_first_uses_at_the_same_time_share_one_attempt(scripts: Scripts) -> None:
    await asyncio.gather(*(get_client("one").call_tool("add") for _ in range(20)))
    assert scripts["one"].opened == 1


def test_an_unknown_alias_is_refused_with_the_known_ones() -> None:
    with pytest.raises(ImproperlyConfigured, match="has no 'three'; it has: one, two"):
        get_client("three")
    with override_settings(MCP={}), pytest.raises(ImproperlyConfigured, match="it has: nothing"):
        get_client("one")


async def test_options_of_the_setting_reach_the_client() -> None:
    entry = {
        "TIMEOUT": 7,
        "STARTUP_TIMEOUT": 6,
        "MAX_RETRIES": 5,
        "PROTOCOL_VERSION": "handshake",
        "ROOTS": ["/srv"],
        "LOG_LEVEL": "error",
        "SAMPLING": "tests.client.pool.test_pool.answer",
        "HEADERS": {"X-Key": "k"},
    }
    with clients(one=entry):
        client = get_client("one")
        options = client._options
        assert (options.timeout, options.startup_timeout, options.max_retries) == (7, 6, 5)
        assert options.protocol_version == "handshake"
        assert (client._manager.log_level, client._callbacks.roots) == ("error", ("file:///srv",))
        assert client._callbacks.sampling is not None
        assert client._callbacks.elicitation is None
        target: Any = client.target
        assert (target.url, dict(target.headers)) == (URL, {"X-Key": "k"})


def answer(params: Any) -> None:
    """Unused."""


def test_each_transport_has_a_target_without_secrets_in_its_repr(subtests: pytest.Subtests) -> None:
    for entry, kind in [
        ({"URL": URL}, "StreamableHTTP"),
        ({"URL": URL, "TRANSPORT": "sse"}, "SSE"),
        ({"URL": "wss://one.example/ws"}, "WebSocket"),
        ({"URL": "wss://one.example/ws", "AUTH": {"TYPE": "bearer", "TOKEN": "s3cret"}}, "AuthenticatedWebSocket"),
        ({"URL": None, "COMMAND": ["run", "s3cret"], "CWD": "/", "ENV": {"A": "s3cret"}}, "Stdio"),
    ]:
        with subtests.test(entry=entry, kind=kind):
            with clients(one=entry):
                target = get_client("one").target
            assert type(target).__name__ == kind
            assert "s3cret" not in repr(target)


async def test_a_token_goes_into_the_handshake_of_a_socket(monkeypatch: pytest.MonkeyPatch) -> None:
    said = []

    class Socket:
        def __init__(self, url: str, *, headers: Any) -> None:
            said.append((url, dict(headers)))

        def open(self) -> Any:
            return Script("stateless").open()

    monkeypatch.setattr(factory, "WebSocket", Socket)
    auth = {"TYPE": "bearer", "TOKEN": "s3cret"}
    with clients(one={"URL": "wss://one.example/ws", "HEADERS": {"X-A": "1"}, "AUTH": auth}):
        await get_client("one").connect()
        await aclose_clients()
    assert said == [("wss://one.example/ws", {"X-A": "1", "Authorization": "Bearer s3cret"})]


def test_each_loop_has_its_own_client_and_leaves_nothing_behind(scripts: Scripts) -> None:
    found: list[Client] = []

    async def use() -> None:
        found.append(get_client("one"))
        await found[-1].call_tool("add")

    asyncio.run(use())
    asyncio.run(use())
    assert found[0] is not found[1]
    assert not any(client.is_connected for client in found)
    get_client("two")
    assert kept() == 1
    found.clear()
    gc.collect()


def test_threads_without_a_loop_share_one_client_which_blocks(scripts: Scripts) -> None:
    client = get_client("one")
    assert client.blocking().call_tool("add").content
    assert get_client("one") is client

    async def elsewhere() -> Any:
        assert get_client("one") is not client
        return await asyncio.to_thread(lambda: (get_client("one"), get_client("one").blocking().call_tool("add")))

    assert asyncio.run(elsewhere())[0] is client
    assert scripts["one"].opened == 1


PER_USER = {"AUTH": {"TYPE": "oauth"}}


async def test_users_never_share_a_client_with_their_own_credentials(scripts: Scripts) -> None:
    ada, ben = SimpleNamespace(pk=1), SimpleNamespace(pk=2)
    with clients(one=PER_USER):
        assert get_client("one", user=ada) is get_client("one", user=SimpleNamespace(pk=1))
        assert get_client("one", user=ada) is not get_client("one", user=ben)
        await get_client("one", user=ada).call_tool("add")
    assert (scripts.of("one", ada).opened, scripts.of("one", ben).opened) == (1, 0)


async def test_a_client_of_users_needs_a_user() -> None:
    for unsaved_user in (None, SimpleNamespace(pk=None)):
        with clients(one=PER_USER), pytest.raises(AuthorizationNeeded):
            get_client("one", user=unsaved_user)


async def test_users_share_a_client_with_the_credential_of_the_project(scripts: Scripts) -> None:
    assert get_client("one", user=SimpleNamespace(pk=1)) is get_client("one")


async def test_each_owner_has_a_client(scripts: Scripts) -> None:
    assert get_client("one", owner="a") is get_client("one", owner="a")
    assert len({get_client("one"), get_client("one", owner="a"), get_client("one", owner="1")}) == 3
    with clients(one=PER_USER):
        ada = SimpleNamespace(pk=1)
        assert get_client("one", user=ada) is not get_client("one", user=ada, owner="1")
        assert get_client("one", user=SimpleNamespace(pk=1)) is not get_client(
            "one", user=SimpleNamespace(pk=2), owner="1"
        )


async def test_the_least_recently_used_client_is_evicted_unless_it_is_busy(scripts: Scripts) -> None:
    gate = asyncio.Event()

    async def slow(params: Any) -> Any:
        await gate.wait()
        return DONE

    with clients(one={"MAX_OWNERS": 2}, two={}):
        busy, first = get_client("one", owner="busy"), get_client("one", owner="first")
        shared, other = get_client("one"), get_client("two", owner="other")
        await asyncio.gather(shared.call_tool("add"), first.call_tool("add"), other.call_tool("add"))
        scripts["one"].answers["tools/call"] = slow
        call = asyncio.create_task(busy.call_tool("add"))
        await scripts["one"].until(lambda: scripts["one"].methods() == ["tools/call"])
        second = get_client("one", owner="second")
        await disconnected(first)
        assert get_client("one", owner="busy") is busy
        assert get_client("one", owner="second") is second
        assert shared.is_connected
        assert other.is_connected
        gate.set()
        assert (await call).content
        # A caller that still has the evicted one can use it.
        assert (await first.call_tool("add")).content


async def test_a_lookup_of_a_client_is_a_use_of_it(scripts: Scripts) -> None:
    with clients(one={"MAX_OWNERS": 2}):
        first, second = get_client("one", owner="first"), get_client("one", owner="second")
        assert get_client("one", owner="first") is first
        get_client("one", owner="third")
        assert get_client("one", owner="first") is first
        assert get_client("one", owner="second") is not second


async def test_an_idle_client_is_disconnected_and_connects_at_its_next_call(scripts: Scripts, clock: Clock) -> None:
    with clients(one={"IDLE": 60}):
        client = get_client("one")
        await client.call_tool("add")
        await clock.advance(59)
        assert client.is_connected
        await clock.advance(1)
        await disconnected(client)
        assert HEALTH_REGISTRY.get("one").connections == 0
        await client.call_tool("add")
        assert scripts["one"].opened == 2
        assert get_client("one") is client


@pytest.mark.parametrize("reason", ["call", "listener"])
async def test_a_client_in_use_is_not_idle(scripts: Scripts, clock: Clock, reason: str) -> None:
    gate = asyncio.Event()

    async def slow(params: Any) -> Any:
        await gate.wait()
        return DONE

    with clients(one={"IDLE": 10}):
        client = get_client("one")
        stop = client.on_list_changed(lambda kind: None) if reason == "listener" else None
        await client.connect()
        call = None
        if reason == "call":
            scripts["one"].answers["tools/call"] = slow
            call = asyncio.create_task(client.call_tool("add"))
        await clock.advance(50)
        assert client.is_connected
        gate.set()
        if call is not None:
            assert (await call).content
        if stop is not None:
            stop()
        await clock.advance(10)
        await disconnected(client)


async def test_after_a_failure_calls_fail_at_once_for_a_while(scripts: Scripts, clock: Clock) -> None:
    client, script = get_client("one"), scripts["one"]
    waits = [10, 20, 40, 80, 160, 160]
    for attempt, wait in enumerate(waits, 1):
        script.refusals.append(ClientConnectionError("It is down"))
        with pytest.raises(ClientConnectionError, match=r"It is down$"):
            await client.call_tool("add")
        await clock.advance(wait - 1)
        with pytest.raises(ClientConnectionError, match=r"It is down \(next attempt in 1.0 s\)"):
            await client.call_tool("add")
        assert script.opened == attempt
        await clock.advance(1)
    assert (await client.call_tool("add")).content
    await client.disconnect()
    script.refusals.append(ClientConnectionError("It is down"))
    with pytest.raises(ClientConnectionError):
        await client.call_tool("add")
    await clock.advance(10)
    assert (await client.call_tool("add")).content


async def test_the_failure_of_one_server_does_not_affect_another(scripts: Scripts) -> None:
    scripts["one"].refusals.append(ClientConnectionError("It is down"))
    with pytest.raises(ClientConnectionError):
        await get_client("one").connect()
    assert (await get_client("two").call_tool("add")).content
    assert (await get_client("one", owner="a").call_tool("add")).content


async def test_a_call_that_needs_authorization_may_be_retried_at_once(scripts: Scripts) -> None:
    client = get_client("one")
    scripts["one"].refusals.append(AuthorizationNeeded("Allow it"))
    with pytest.raises(AuthorizationNeeded):
        await client.call_tool("add")
    assert (await client.call_tool("add")).content


async def test_a_changed_setting_replaces_the_clients(scripts: Scripts) -> None:
    before = get_client("one")
    await before.call_tool("add")
    with clients(one={"TIMEOUT": 5}):
        await disconnected(before)
        after = get_client("one")
        assert after is not before
        assert after._options.timeout == 5
    assert get_client("one") is not after


async def test_a_replaced_client_is_disconnected_after_its_calls(scripts: Scripts) -> None:
    gate, client = asyncio.Event(), get_client("one")

    async def slow(params: Any) -> Any:
        await gate.wait()
        return DONE

    scripts["one"].answers["tools/call"] = slow
    call = asyncio.create_task(client.call_tool("add"))
    await scripts["one"].until(lambda: "tools/call" in scripts["one"].methods())
    with clients(one={"TIMEOUT": 5}):
        for _ in range(20):
            await asyncio.sleep(0)
        assert client.is_connected
        gate.set()
        assert (await call).content
        await disconnected(client)


async def test_the_clients_of_a_loop_are_closed_together(scripts: Scripts) -> None:
    mine = [get_client("one"), get_client("two")]
    await asyncio.gather(*(client.call_tool("add") for client in mine))
    apart = await asyncio.to_thread(get_client, "one")
    await asyncio.to_thread(apart.blocking().connect)
    await aclose_clients()
    assert not any(client.is_connected for client in mine)
    assert apart.is_connected
    assert get_client("one") not in mine
    with pytest.raises(RuntimeError, match="await aclose_clients"):
        close_clients()
    await asyncio.to_thread(close_clients)
    assert not apart.is_connected
    assert kept() == 0


async def test_clients_are_closed_when_the_server_of_their_loop_ends(scripts: Scripts) -> None:
    client = get_client("one")
    await client.call_tool("add")
    await get_services().lifecycle.shutdown()
    assert not client.is_connected
    assert kept() == 0


async def test_blocking_clients_are_closed_when_a_server_ends_as_well(scripts: Scripts) -> None:
    client = await asyncio.to_thread(get_client, "one")
    await asyncio.to_thread(client.blocking().connect)
    await get_services().lifecycle.shutdown()
    assert not client.is_connected
    assert kept() == 0


async def test_a_connection_that_broke_while_idle_does_not_refuse_calls(scripts: Scripts) -> None:
    client = get_client("one")
    await client.call_tool("add")
    scripts["one"].hang_up()
    await disconnected(client)
    assert HEALTH_REGISTRY.get("one").error == ""
    assert (await client.call_tool("add")).content
    assert scripts["one"].opened == 2


async def test_a_broken_connection_with_handlers_does_not_refuse_calls(scripts: Scripts) -> None:
    client = get_client("one")
    client.on_list_changed(lambda kind: None)
    await client.call_tool("add")
    scripts["one"].hang_up()
    await disconnected(client)
    assert HEALTH_REGISTRY.get("one").error == ""
    assert (await client.call_tool("add")).content


def test_the_end_of_a_loop_is_no_failure(scripts: Scripts) -> None:
    async def use() -> None:
        await get_client("one").call_tool("add")

    asyncio.run(use())
    assert (HEALTH_REGISTRY.get("one").error, HEALTH_REGISTRY.get("one").connections) == ("", 0)


async def test_the_signal_of_a_loop_is_connected_once(scripts: Scripts) -> None:
    told: list[Any] = []

    def receive(**kwargs: Any) -> None:
        told.append((kwargs["loop"], kwargs["close"]))

    clients_used.connect(receive)
    try:
        get_client("one")
        get_client("two")
        await asyncio.to_thread(get_client, "one")
    finally:
        clients_used.disconnect(receive)
    assert told == [(asyncio.get_running_loop(), aclose_clients)]


def test_a_forked_process_shares_no_client(scripts: Scripts) -> None:
    parent = pool._ClientPool()
    client = parent.get("one", None, None)
    parent.reset_after_fork()
    assert parent.get("one", None, None) is not client


def test_a_program_is_started_for_the_first_call_and_ends_with_its_client() -> None:
    with override_settings(MCP={"CLIENTS": {"program": {"COMMAND": [sys.executable, "-c", PROGRAM]}}}):
        client = get_client("program").blocking()
        numbers = {client.call_tool("pid").content[0].text for _ in range(2)}  # type: ignore[union-attr]
        close_clients()
        (number,) = numbers
        with pytest.raises(ProcessLookupError):
            os.kill(int(number), 0)
