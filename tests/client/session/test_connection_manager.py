"""The connection of a client: its start, its recovery, and its end."""

import asyncio
import gc
import logging
import traceback
from contextvars import ContextVar
from typing import Any

import anyio
import pytest
from mcp import MCPError

from mcp_django.client import AuthorizationNeeded, Client, ClientConnectionError, HandshakeError
from mcp_django.client.session import connection_manager as keeping
from mcp_django.client.session import timing
from tests.client.script import ERAS, HANDSHAKE, STATELESS, Script
from tests.support.clock import Clock

TOOLS = {"tools": [{"name": "add", "inputSchema": {"type": "object"}}]}
COLOR: ContextVar[str] = ContextVar("color")


@pytest.fixture(autouse=True)
def _short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timing, "FIRST_DELAY_SECONDS", 0.001)


@pytest.fixture(params=ERAS)
def era(request: pytest.FixtureRequest) -> str:
    return str(request.param)


async def test_the_era_is_negotiated(subtests: pytest.Subtests) -> None:
    for era in ERAS:
        with subtests.test(era=era):
            script = Script(era)
            async with Client(script) as client:
                assert client.protocol_version == {"handshake": HANDSHAKE, "stateless": STATELESS}[era]
                assert client.server_info is not None
                assert (client.server_info.name, client.is_connected) == ("script", True)
                assert client.capabilities.tools is not None
            assert not client.is_connected


async def test_a_client_connects_at_its_first_call(subtests: pytest.Subtests) -> None:
    for era in ERAS:
        with subtests.test(era=era):
            script = Script(era, tools_list=TOOLS)
            client = Client(script)
            assert [tool.name for tool in await client.list_tools()] == ["add"]
            await client.close()
            assert script.opened == 1


async def test_many_tasks_share_the_first_connection(subtests: pytest.Subtests) -> None:
    for era in ERAS:
        with subtests.test(era=era):
            script = Script(era, tools_list=TOOLS)
            client = Client(script)
            await asyncio.gather(*(client.list_tools() for _ in range(20)))
            assert script.opened == 1
            await client.close()


async def test_a_revision_of_the_handshake_is_proposed_as_pinned(subtests: pytest.Subtests) -> None:
    for pinned in ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"]:
        with subtests.test(pinned=pinned):
            script = Script("handshake")
            async with Client(script, protocol_version=pinned) as client:
                assert client.protocol_version == pinned
            assert [method for method, _ in script.received if method == "server/discover"] == []


async def test_a_server_that_answers_with_another_revision_than_the_pinned_one_is_refused() -> None:
    answer = {"protocolVersion": "2025-06-18", "capabilities": {}, "serverInfo": {"name": "s", "version": "1"}}
    with pytest.raises(HandshakeError, match="does not support the revision 2024-11-05"):
        await Client(Script(initialize=answer), protocol_version="2024-11-05").connect()


async def test_a_server_of_the_other_era_than_the_pinned_one_is_refused(subtests: pytest.Subtests) -> None:
    for pinned, spoken in [("handshake", "stateless"), (STATELESS, "handshake")]:
        with subtests.test(pinned=pinned, spoken=spoken):
            script = Script(spoken)
            with pytest.raises(HandshakeError, match="Method not found"):
                await Client(script, protocol_version=pinned).connect()
            assert script.opened == 1, "asking again changes nothing"


async def test_a_server_that_speaks_no_known_revision_is_refused() -> None:
    answer = {"protocolVersion": "1999-01-01", "capabilities": {}, "serverInfo": {"name": "s", "version": "1"}}
    with pytest.raises(HandshakeError, match="supports none"):
        await Client(Script(initialize=answer)).connect()


async def test_a_server_that_names_only_unknown_revisions_is_not_asked_for_a_handshake() -> None:
    refusal = MCPError(-32022, "Unsupported protocol version", {"supported": ["2999-01-01"], "requested": STATELESS})
    script = Script(server_discover=refusal)
    with pytest.raises(HandshakeError, match="Unsupported"):
        await Client(script).connect()
    assert "initialize" not in [method for method, _ in script.received]


def test_an_invalid_option_is_refused(subtests: pytest.Subtests) -> None:
    for wrong in [{"protocol_version": "1999-01-01"}, {"max_retries": -1}, {"timeout": 0}]:
        with (
            subtests.test(wrong=wrong),
            pytest.raises(ValueError, match=r"must be one of|must be 0 or more|more than 0"),
        ):
            Client(Script(), **wrong)


def test_an_invalid_target_is_refused() -> None:
    with pytest.raises(TypeError, match="StreamableHTTP"):
        Client("https://example.com/mcp")  # type: ignore[arg-type]


async def test_a_server_that_does_not_answer_is_a_timeout(clock: Clock, subtests: pytest.Subtests) -> None:
    for era in ERAS:
        with subtests.test(era=era):
            script = Script(era, server_discover=lambda _: anyio.sleep_forever())
            connecting = asyncio.create_task(Client(script, startup_timeout=1, max_retries=1, alias="slow").connect())
            await clock.advance(10)
            with pytest.raises(ClientConnectionError, match=r"'slow' did not answer within 1 s"):
                await connecting
            assert script.opened == 2


async def test_an_attempt_that_fails_is_repeated_a_bounded_number_of_times() -> None:
    script = Script(tools_list=TOOLS)
    script.refusals = [OSError(111, "refused") for _ in range(9)]
    client = Client(script, max_retries=2)
    with pytest.raises(ClientConnectionError, match="ConnectionRefusedError: Connection refused"):
        await client.connect()
    assert script.opened == 3
    assert isinstance(client.last_error, ClientConnectionError)
    script.refusals = [OSError(111, "refused")]
    assert await client.list_tools()
    assert client.last_error is None
    await client.close()


async def test_the_text_of_an_unknown_error_is_not_shown() -> None:
    script = Script()
    script.refusals = [ValueError("https://user:pw@example.com?token=hunter2"), Exception("Bearer hunter2")]
    for _ in range(2):
        with pytest.raises(ClientConnectionError) as caught:
            await Client(script, max_retries=0).connect()
        assert "hunter2" not in str(caught.value) + repr(caught.value)


async def test_a_needed_authorization_fails_all_waiting_calls_and_is_not_retried() -> None:
    script = Script()
    script.refusals = [AuthorizationNeeded("Allow it first", "github", "/connect")] * 3
    client = Client(script)
    results = await asyncio.gather(client.list_tools(), client.call_tool("add"), return_exceptions=True)
    assert [(type(error), getattr(error, "url", "")) for error in results] == [(AuthorizationNeeded, "/connect")] * 2
    assert script.opened == 1


async def test_a_lost_connection_fails_all_waiting_calls(era: str) -> None:
    async def hang(params: dict[str, Any]) -> None:
        if len(script.methods()) == 3:
            script.hang_up()
        await anyio.sleep_forever()

    script = Script(era, tools_call=hang)
    async with Client(script) as client:
        calls = [client.call_tool(name) for name in "abc"]
        results = await asyncio.gather(*calls, return_exceptions=True)
        assert [type(result) for result in results] == [ClientConnectionError] * 3
        assert script.methods() == ["tools/call"] * 3, "a tool is never called twice"


async def test_a_safe_request_is_sent_again_on_a_new_connection(era: str) -> None:
    def first_hangs_up(params: dict[str, Any]) -> Any:
        if script.opened == 1:
            script.hang_up()
            return anyio.sleep_forever()
        return TOOLS

    script = Script(era, tools_list=first_hangs_up)
    async with Client(script) as client:
        assert len(await client.list_tools()) == 1
        assert (script.opened, script.methods()) == (2, ["tools/list"] * 2)


async def test_a_safe_request_is_not_sent_again_for_ever(era: str) -> None:
    async def hang_up(params: dict[str, Any]) -> None:
        script.hang_up()
        await anyio.sleep_forever()

    script = Script(era, tools_list=hang_up)
    async with Client(script, max_retries=2) as client:
        with pytest.raises(ClientConnectionError):
            await client.list_tools()
    assert script.methods() == ["tools/list"] * 3


async def test_the_next_call_connects_without_a_waiting_caller(subtests: pytest.Subtests) -> None:
    for era in ERAS:
        with subtests.test(era=era):
            script = Script(era, tools_list=TOOLS)
            async with Client(script) as client:
                script.hang_up()
                while client.is_connected:
                    await asyncio.sleep(0)
                assert script.opened == 1
                assert await client.list_tools()
                assert script.opened == 2


async def test_a_session_unknown_to_the_server_is_replaced() -> None:
    def forgotten(params: dict[str, Any]) -> Any:
        return MCPError(-32600, "Session terminated") if script.opened == 1 else TOOLS

    script = Script(tools_list=forgotten)
    async with Client(script) as client:
        assert await client.list_tools()
        assert script.opened == 2


async def test_a_closed_client_refuses_calls_until_it_is_connected_again(subtests: pytest.Subtests) -> None:
    for era in ERAS:
        with subtests.test(era=era):
            script = Script(era, tools_list=TOOLS)
            client = Client(script)
            await client.connect()
            await client.close()
            await client.close()
            with pytest.raises(ClientConnectionError, match="closed; call connect"):
                await client.list_tools()
            await client.connect()
            assert await client.list_tools()
            await client.close()


async def test_closing_fails_the_calls_under_way(era: str) -> None:
    script = Script(era, tools_call=lambda _: anyio.sleep_forever())
    client = Client(script)
    call = asyncio.create_task(client.call_tool("add"))
    await script.until(lambda: "tools/call" in script.methods())
    await client.close()
    with pytest.raises(ClientConnectionError):
        await call


async def test_a_handler_may_close_the_client() -> None:
    script = Script(tools_list=TOOLS)
    client = Client(script)
    closed = asyncio.Event()

    async def close(kind: str) -> None:
        try:
            await client.close()
        finally:
            closed.set()

    client.on_list_changed(close)
    await client.connect()
    await script.notify("notifications/tools/list_changed")
    await closed.wait()
    while client.loop is not None:
        await asyncio.sleep(0)
    assert not client.is_connected


async def test_a_closed_client_leaves_nothing_behind(
    caplog: pytest.LogCaptureFixture, subtests: pytest.Subtests
) -> None:
    for era in ERAS:
        with subtests.test(era=era):
            before = asyncio.all_tasks()
            script = Script(era, tools_list=TOOLS, tools_call=lambda _: anyio.sleep_forever())
            async with Client(script) as client:
                client.on_list_changed(lambda kind: None)
                await client.list_tools()
                call = asyncio.create_task(client.call_tool("add"))
                await script.until(lambda script=script: "tools/call" in script.methods())
                call.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await call
                script.hang_up()
            failing = Client(script, max_retries=0)
            script.refusals = [OSError(111, "refused")]
            with pytest.raises(ClientConnectionError):
                await failing.connect()
            del client, failing, call
            gc.collect()
            await asyncio.sleep(0)
            assert asyncio.all_tasks() == before
            assert "never retrieved" not in caplog.text


async def test_a_cancelled_first_caller_does_not_affect_the_others() -> None:
    go_on = asyncio.Event()

    async def slowly(params: dict[str, Any]) -> Any:
        await go_on.wait()
        return MCPError(-32601, "no")

    script = Script(server_discover=slowly, tools_list=TOOLS)
    client = Client(script)
    first, second = asyncio.create_task(client.connect()), asyncio.create_task(client.list_tools())
    await script.until(lambda: script.received)
    first.cancel()
    await asyncio.sleep(0)
    go_on.set()
    assert len(await second) == 1
    assert (first.cancelled(), script.opened) == (True, 1)
    await client.close()


async def test_a_connection_does_not_inherit_the_context_of_its_caller() -> None:
    class Target(Script):
        def open(self) -> Any:
            colors.append(COLOR.get("none"))
            return super().open()

    colors: list[str] = []
    COLOR.set("red")
    async with Client(Target()):
        assert colors == ["none"]


def test_a_client_connected_on_another_loop_refuses_calls() -> None:
    script = Script(tools_list=TOOLS)
    client = Client(script)
    loop = asyncio.new_event_loop()
    loop.run_until_complete(client.connect())
    try:
        with pytest.raises(ClientConnectionError, match="another event loop"):
            asyncio.run(client.list_tools())
    finally:
        loop.run_until_complete(client.close())
        loop.close()


def test_a_client_may_be_used_on_one_loop_after_another() -> None:
    client = Client(Script(tools_list=TOOLS))
    for _ in range(2):
        assert asyncio.run(client.list_tools())


async def test_a_connection_that_does_not_close_is_aborted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keeping, "CLOSE_TIMEOUT_SECONDS", 0.01)
    cut = asyncio.Event()

    class Sticky(Script):
        def open(self) -> Any:
            return Stuck(super().open())

    class Stuck:
        def __init__(self, inner: Any) -> None:
            self.inner = inner

        async def __aenter__(self) -> Any:
            return await self.inner.__aenter__()

        async def __aexit__(self, *error: Any) -> None:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                cut.set()
                raise
            finally:
                await self.inner.__aexit__(None, None, None)

    client = Client(Sticky())
    await client.connect()
    await client.close()
    assert cut.is_set()
    assert not client.is_connected


async def test_no_secret_of_a_target_is_shown(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "mcp_django")
    clients = [
        Client.streamable_http("http://127.0.0.1:1/mcp?key=hunter2", headers={"X-Key": "hunter2"}, max_retries=0),
        Client.sse("http://127.0.0.1:1/sse?key=hunter2", headers={"X-Key": "hunter2"}, max_retries=0),
        Client.websocket("ws://127.0.0.1:1/ws?key=hunter2", headers={"X-Key": "hunter2"}, max_retries=0),
        Client.stdio("no-such-command", "--key=hunter2", env={"KEY": "hunter2"}, max_retries=0),
    ]
    for client in clients:
        with pytest.raises(ClientConnectionError) as caught:
            await client.connect()
        told = "".join(traceback.format_exception(caught.value)) + repr(client) + repr(client.blocking())
        assert "hunter2" not in told
    assert "hunter2" not in caplog.text
