"""Notifications of a server, and their handlers."""

import asyncio
import logging
from collections.abc import Callable
from typing import Any

import anyio
import mcp_types as types
import pytest
from mcp import MCPError

from mcp_django.client import CallError, Client, ClientConnectionError, Progress
from mcp_django.client.session import handlers, timing
from tests.client.script import ERAS, Script
from tests.support.clock import Clock
from tests.support.waiting import WAIT_SECONDS

TEXT = [{"type": "text", "text": "3"}]
URI = "shop://hours"


@pytest.fixture(autouse=True)
def _short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timing, "FIRST_DELAY_SECONDS", 0.001)


@pytest.fixture(params=ERAS)
def era(request: pytest.FixtureRequest) -> str:
    return str(request.param)


class RecordingHandler:
    """A handler that records its arguments."""

    def __init__(self) -> None:
        self.values: list[Any] = []
        self._news = asyncio.Event()

    def __call__(self, *values: Any) -> None:
        self.values.append(values[0] if len(values) == 1 else values)
        self._news.set()

    async def until(self, condition: Callable[[list[Any]], Any]) -> None:
        async with asyncio.timeout(WAIT_SECONDS):
            while not condition(self.values):
                self._news.clear()
                await self._news.wait()


def accept_streams(script: Script) -> Script:
    """Let a script of the stateless era accept streams of changes, and record them in `streams`."""

    async def listen(params: dict[str, Any], id: Any) -> dict[str, Any] | None:
        wanted = {**params["notifications"]}
        wanted.pop("refuse", None)
        over = anyio.Event()
        stream = {"id": id, "filter": wanted, "over": over}
        script.streams.append(stream)
        await script.notify(
            "notifications/subscriptions/acknowledged",
            {"notifications": wanted, "_meta": {"io.modelcontextprotocol/subscriptionId": id}},
        )
        script.wake()
        await over.wait()
        return {"resultType": "complete", "_meta": {"io.modelcontextprotocol/subscriptionId": id}}

    script.answers["subscriptions/listen"] = listen
    return script


async def notify_subscriber(script: Script, method: str, params: dict[str, Any] | None = None) -> None:
    """Send a notification as the era does."""
    meta = {}
    if script.era == "stateless":
        meta = {"_meta": {"io.modelcontextprotocol/subscriptionId": script.streams[-1]["id"]}}
    await script.notify(method, {**(params or {}), **meta})


def build_progress_server(script_of: list[Script]) -> Any:
    """Build a tool that reports its progress twice."""

    async def call(params: dict[str, Any]) -> dict[str, Any]:
        token = params.get("_meta", {}).get("progressToken")
        if token is not None:
            for step in (1, 2):
                said = {"progressToken": token, "progress": step, "total": 2, "message": f"step {step}"}
                await script_of[0].notify("notifications/progress", said)
        return {"content": TEXT}

    return call


async def test_progress_reaches_the_call_and_the_client(subtests: pytest.Subtests) -> None:
    for era in ERAS:
        with subtests.test(era=era):
            script_of: list[Script] = []
            script = Script(era, tools_call=build_progress_server(script_of), resources_read={"contents": []})
            script_of.append(script)
            own, of_all = RecordingHandler(), RecordingHandler()
            async with Client(script) as client:
                forget = client.on_progress(of_all)
                await client.call_tool("add", on_progress=own)
                await own.until(lambda received: len(received) == 2)
                await of_all.until(lambda received: len(received) == 2)
                assert own.values == [(1.0, 2.0, "step 1"), (2.0, 2.0, "step 2")]
                first = Progress(method="tools/call", name="add", progress=1.0, total=2.0, message="step 1")
                assert of_all.values[0] == first
                forget()
                await client.call_tool("add")
                assert "progressToken" not in script.received[-1][1].get("_meta", {}), "nobody wants to know"


async def test_progress_beyond_the_speed_of_the_handler_is_dropped() -> None:
    async def call(params: dict[str, Any]) -> dict[str, Any]:
        for step in range(500):
            said = {"progressToken": params["_meta"]["progressToken"], "progress": step}
            await script.notify("notifications/progress", said)
        all_sent.set()
        await last_heard.wait()
        return {"content": TEXT}

    received, all_sent, last_heard = list[float](), asyncio.Event(), asyncio.Event()

    async def slowly(progress: float, total: float | None, message: str | None) -> None:
        received.append(progress)
        await all_sent.wait()
        if progress == 499:
            last_heard.set()

    script = Script(tools_call=call)
    async with Client(script) as client:
        await client.call_tool("add", on_progress=slowly)
    assert (received[0], received[-1]) == (0, 499)
    assert len(received) < 500
    assert received == sorted(received)


async def test_logs_reach_handlers_of_both_kinds_in_order(era: str) -> None:
    script, plain, waited = Script(era), RecordingHandler(), list[Any]()

    async def wait(message: types.LoggingMessageNotificationParams) -> None:
        await asyncio.sleep(0)
        waited.append(message.data)

    async with Client(script) as client:
        client.on_log(wait)
        forget = client.on_log(plain)
        for number in range(20):
            await script.notify("notifications/message", {"level": "info", "logger": "shop", "data": number})
        await plain.until(lambda received: len(received) == 20)
        assert [message.data for message in plain.values] == waited == list(range(20))
        assert (plain.values[0].level, plain.values[0].logger) == ("info", "shop")
        forget()
        forget()
        await script.notify("notifications/message", {"level": "info", "data": "last"})
        while waited[-1] != "last":
            await asyncio.sleep(0)
        assert len(plain.values) == 20


async def test_a_failing_handler_is_logged_and_stops_nothing(caplog: pytest.LogCaptureFixture) -> None:
    script, handler = Script(tools_call={"content": TEXT}), RecordingHandler()

    def fail(*_: Any) -> None:
        raise RuntimeError("broken handler")

    async with Client(script) as client:
        client.on_log(fail)
        client.on_log(handler)
        for _ in range(2):
            await script.notify("notifications/message", {"level": "info", "data": "x"})
        await handler.until(lambda received: len(received) == 2)
        await client.call_tool("add", on_progress=fail)
    assert [record.message.split(":")[0] for record in caplog.records].count("Notification handler failed") == 2


async def test_messages_for_slow_handlers_are_dropped(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(handlers, "MAX_QUEUED_NOTIFICATIONS", 3)
    script, go_on, received = Script(), asyncio.Event(), list[Any]()

    async def slowly(message: Any) -> None:
        received.append(message.data)
        await go_on.wait()

    async with Client(script) as client:
        client.on_log(slowly)
        await script.notify("notifications/message", {"level": "info", "data": 0})
        while not received:
            await asyncio.sleep(0)
        for number in range(1, 10):
            await script.notify("notifications/message", {"level": "info", "data": number})
        await client.ping()
        go_on.set()
        while len(received) < 4:
            await asyncio.sleep(0)
        await asyncio.sleep(0)
    assert received == [0, 7, 8, 9]
    assert "dropped 6 messages" in caplog.text


async def test_changes_of_lists_reach_the_handler(era: str) -> None:
    script, handler = accept_streams(Script(era)), RecordingHandler()
    async with Client(script) as client:
        forget = client.on_list_changed(handler)
        if era == "stateless":
            await script.until(lambda: script.streams)
        for kind in ("tools", "resources", "prompts"):
            await notify_subscriber(script, f"notifications/{kind}/list_changed")
        await handler.until(lambda received: len(received) == 3)
        assert handler.values == ["tools", "resources", "prompts"]
        forget()
        if era == "stateless":
            await script.until(lambda: script.cancelled)


async def test_no_stream_is_opened_without_a_handler() -> None:
    script = accept_streams(Script("stateless", tools_list={"tools": []}))
    async with Client(script) as client:
        client.on_log(print)
        client.on_resource_updated(print)
        await client.list_tools()
    assert script.methods() == ["tools/list"]


async def test_updates_of_resources_reach_the_handler(era: str) -> None:
    script, handler = accept_streams(Script(era)), RecordingHandler()
    async with Client(script) as client:
        client.on_resource_updated(handler)
        await client.subscribe(URI)
        await notify_subscriber(script, "notifications/resources/updated", {"uri": URI})
        await handler.until(lambda received: received)
        assert handler.values == [URI]
        await client.unsubscribe(URI)
        await client.unsubscribe(URI)
        if era == "stateless":
            await script.until(lambda: script.cancelled)
        else:
            assert script.methods() == ["resources/subscribe", "resources/unsubscribe"]


async def test_one_stream_has_all_subscriptions_and_is_replaced_with_them() -> None:
    script = accept_streams(Script("stateless"))
    async with Client(script) as client:
        client.on_list_changed(print)
        await client.subscribe("shop://a")
        await client.subscribe("shop://b")
        last = script.streams[-1]["filter"]
        assert last == {
            "toolsListChanged": True,
            "promptsListChanged": True,
            "resourcesListChanged": True,
            "resourceSubscriptions": ["shop://a", "shop://b"],
        }
        earlier = [stream["id"] for stream in script.streams[:-1]]
        await script.until(lambda: set(earlier) <= set(script.cancelled))
        await client.unsubscribe("shop://a")
        await script.until(lambda: script.streams[-1]["filter"]["resourceSubscriptions"] == ["shop://b"])


async def test_a_subscription_that_is_refused_is_an_error(subtests: pytest.Subtests) -> None:
    for era in ERAS:
        with subtests.test(era=era):
            script = Script(era)
            refusal = MCPError(-32602, "No such resource")
            script.answers |= {"resources/subscribe": refusal, "subscriptions/listen": refusal}
            async with Client(script) as client:
                with pytest.raises(CallError, match="No such resource"):
                    await client.subscribe(URI)
                with pytest.raises(CallError, match="No such resource"):
                    await client.subscribe(URI)


async def test_a_subscription_that_the_stream_leaves_out_is_an_error() -> None:
    async def listen(params: dict[str, Any], id: Any) -> Any:
        meta = {"io.modelcontextprotocol/subscriptionId": id}
        await script.notify("notifications/subscriptions/acknowledged", {"notifications": {}, "_meta": meta})
        await anyio.sleep_forever()

    script = Script("stateless", subscriptions_listen=listen)
    async with Client(script) as client:
        with pytest.raises(CallError, match="Not subscribed"):
            await client.subscribe(URI)


async def test_a_lost_stream_is_reopened_and_missed_changes_are_announced() -> None:
    script, lists, uris = (
        accept_streams(Script("stateless", {"tools": {"listChanged": True}})),
        RecordingHandler(),
        RecordingHandler(),
    )
    async with Client(script) as client:
        client.on_list_changed(lists)
        client.on_resource_updated(uris)
        await client.subscribe(URI)
        before = len(script.streams)
        script.streams[-1]["over"].set()
        await lists.until(lambda received: received)
        await uris.until(lambda received: received)
        assert (lists.values, uris.values) == (["tools"], [URI])
        assert len(script.streams) == before + 1


async def test_a_permanently_refused_stream_is_not_requested_again() -> None:
    script = Script("stateless", subscriptions_listen=MCPError(-32601, "No streams"), prompts_list={"prompts": []})
    async with Client(script) as client:
        client.on_list_changed(print)
        await script.until(lambda: "subscriptions/listen" in script.methods())
        for _ in range(5):
            await client.list_prompts()
    assert script.methods().count("subscriptions/listen") == 1


async def test_a_new_connection_restores_the_subscriptions(era: str) -> None:
    script, lists, uris = accept_streams(Script(era)), RecordingHandler(), RecordingHandler()
    async with Client(script, log_level="warning") as client:
        client.on_list_changed(lists)
        client.on_resource_updated(uris)
        await client.subscribe(URI)
        script.received.clear()
        script.hang_up()
        await lists.until(lambda received: len(received) == 3)
        await uris.until(lambda received: received)
        assert (sorted(lists.values), uris.values) == (["prompts", "resources", "tools"], [URI])
        assert script.opened == 2, "it was opened again without a call"
        if era == "handshake":
            assert script.methods() == ["logging/setLevel", "resources/subscribe"]
        else:
            await script.until(lambda: "subscriptions/listen" in script.methods())
            assert script.streams[-1]["filter"]["resourceSubscriptions"] == [URI]


async def test_waiting_for_a_subscription_ends_with_the_connection() -> None:
    async def hang_up(params: dict[str, Any], id: Any) -> Any:
        script.hang_up()
        await anyio.sleep_forever()

    script = Script("stateless", subscriptions_listen=hang_up)
    async with Client(script, max_retries=0) as client:
        with pytest.raises(ClientConnectionError):
            await client.subscribe(URI)


async def test_the_log_level_is_sent_once_or_with_each_call(subtests: pytest.Subtests) -> None:
    for era in ERAS:
        with subtests.test(era=era):
            script = Script(era, tools_call={"content": TEXT})
            async with Client(script, log_level="warning") as client:
                await client.call_tool("add")
                meta = script.received[-1][1].get("_meta", {})
                if era == "handshake":
                    assert ("logging/setLevel", "warning") in [(m, p.get("level")) for m, p in script.received]
                    assert "io.modelcontextprotocol/logLevel" not in meta
                else:
                    assert meta["io.modelcontextprotocol/logLevel"] == "warning"
                await client.set_logging_level("error")
                await client.call_tool("add")
                if era == "handshake":
                    assert script.methods()[-2] == "logging/setLevel"
                else:
                    assert script.received[-1][1]["_meta"]["io.modelcontextprotocol/logLevel"] == "error"
                    await client.exchange(
                        "tools/call", {"name": "add"}, meta={"io.modelcontextprotocol/logLevel": "debug"}
                    )
                    assert script.received[-1][1]["_meta"]["io.modelcontextprotocol/logLevel"] == "debug"


async def test_a_handler_may_call_the_server(era: str) -> None:
    script, listed = accept_streams(Script(era, tools_list={"tools": []})), asyncio.Event()
    async with Client(script) as client:

        async def refresh(kind: str) -> None:
            await client.list_tools()
            listed.set()

        client.on_list_changed(refresh)
        if era == "stateless":
            await script.until(lambda: script.streams)
        await notify_subscriber(script, "notifications/tools/list_changed")
        await listed.wait()


async def test_unreadable_messages_reach_no_handler(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "mcp_django.client")
    script = Script(prompts_list={"prompts": []})
    async with Client(script) as client:
        await script._out.send(ValueError("Bearer hunter2"))
        assert await client.list_prompts() == []
    assert "ValueError" in caplog.text
    assert "hunter2" not in caplog.text


async def test_a_stream_without_an_acknowledgement_is_an_error(clock: Clock) -> None:
    script = Script("stateless", subscriptions_listen=lambda params, id: anyio.sleep_forever())
    async with Client(script, startup_timeout=10) as client:
        subscribing = asyncio.create_task(client.subscribe(URI))
        await clock.advance(10)
        with pytest.raises(ClientConnectionError, match="stream of changes"):
            await subscribing
        await script.until(lambda: script.cancelled)


async def test_a_refused_log_level_does_not_end_the_connection(caplog: pytest.LogCaptureFixture) -> None:
    script = Script(logging_setLevel=MCPError(-32602, "No such level"))
    async with Client(script, log_level="warning") as client:
        assert client.is_connected
    assert "refused logging/setLevel" in caplog.text
