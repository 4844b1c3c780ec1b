"""A socket that is open: frames, cancellation, limits, and every way in which it ends."""

import asyncio
import logging
from typing import Any

import pytest
from asgiref.sync import sync_to_async

from mcp_django import Context, Server
from mcp_django.asgi import mount
from mcp_django.models import Session
from mcp_django.wiring import get_services
from tests.support.clock import Clock
from tests.transports.sockets import STATELESS, Socket

PEOPLE = "tests.interaction.verifiers.Tokens"


class RecordingServer:
    """A server that records the steps of its handlers."""

    def __init__(self) -> None:
        self.server = Server("told", alias="told")
        self.events: list[str] = []
        self._changed = asyncio.Event()
        self.gate = asyncio.Event()
        self.server.tool(self.add)
        self.server.tool(self.wait)
        self.server.tool(self.flood)
        self.server.tool(self.ask)
        self.app = mount(_inner, servers={"mcp": self.server})

    def note(self, what: str) -> None:
        self.events.append(what)
        self._changed.set()

    async def until(self, what: str) -> None:
        while what not in self.events:
            self._changed.clear()
            await self._changed.wait()

    async def add(self, a: int, b: int) -> int:
        return a + b

    async def wait(self, name: str = "call") -> str:
        """Wait at the gate."""
        self.note(f"{name} runs")
        try:
            await self.gate.wait()
        except asyncio.CancelledError:
            self.note(f"{name} cancelled")
            raise
        self.note(f"{name} done")
        return name

    async def flood(self, ctx: Context, times: int, size: int = 10) -> str:
        """Log messages without an end."""
        self.note("flood runs")
        try:
            for _ in range(times):
                await ctx.info("x" * size)
        except BaseException as problem:
            self.note("flood ended")
            raise problem
        self.note("flood done")
        return "done"

    async def ask(self, ctx: Context) -> str:
        answer = await ctx.elicit("Go on?")
        return answer.action


async def _inner(scope: Any, receive: Any, send: Any) -> None:
    raise AssertionError("not for the application")


@pytest.fixture(autouse=True)
def _open(settings: Any, db: None) -> None:
    settings.ALLOWED_HOSTS = ["127.0.0.1"]
    settings.MCP = {"AUTH": "none"}


@pytest.fixture(autouse=True)
def _nothing_is_left() -> Any:
    yield
    assert not len(get_services().stream_limiter)
    assert not get_services().lifecycle.active


async def open_socket(recorder: RecordingServer, *args: Any, **scope: Any) -> Socket:
    socket = Socket(recorder.app, "/mcp/ws", *args, **scope)
    await socket.accepted()
    return socket


async def disconnect(socket: Socket) -> None:
    socket.leave()
    await socket.finish()


async def start_shutdown() -> "asyncio.Future[None]":
    """The process shuts down; the rest of that."""
    closing = asyncio.ensure_future(get_services().lifecycle.shutdown())
    while not get_services().lifecycle.is_draining():
        await asyncio.sleep(0)
    return closing


def limit(settings: Any, **limits: Any) -> None:
    settings.MCP = {**settings.MCP, "LIMITS": limits}


# Frames


async def test_both_eras_are_served_on_one_socket() -> None:
    socket = await open_socket(RecordingServer())
    assert await socket.value("add", a=1, b=2) == 3
    hello = await socket.handshake()
    assert hello["protocolVersion"] == "2025-11-25"
    assert await socket.value("add", a=2, b=3) == 5
    socket.revision = STATELESS
    assert await socket.value("add", a=3, b=4) == 7
    await disconnect(socket)


async def test_a_frame_with_invalid_json_gets_an_error_and_the_socket_goes_on() -> None:
    socket = await open_socket(RecordingServer())
    for text in ("", "nonsense", "{", '{"id": 1}}', '"\ud800"', "\ufeff{}", "null", "1"):
        socket.put(text=text)
        assert (await socket.message())["error"]["code"] in (-32700, -32600), text
    assert await socket.value("add", a=1, b=2) == 3
    await disconnect(socket)


async def test_an_array_is_an_invalid_message() -> None:
    socket = await open_socket(RecordingServer())
    socket.put(text="[]")
    assert (await socket.message())["error"]["code"] == -32600
    await disconnect(socket)


async def test_a_frame_with_both_keys_is_text() -> None:
    socket = await open_socket(RecordingServer())
    socket.put(text="", bytes=None)
    assert (await socket.message())["error"]["code"] == -32700
    await disconnect(socket)


async def test_a_binary_frame_closes_the_socket(subtests: pytest.Subtests) -> None:
    for frame in [{"bytes": b"{}"}, {"bytes": b"", "text": None}]:
        with subtests.test(frame=frame):
            recorder = RecordingServer()
            socket = await open_socket(recorder)
            socket.call("wait")
            await recorder.until("call runs")
            socket.put(**frame)
            assert (await socket.closed())[0] == 1003
            await recorder.until("call cancelled")


async def test_a_frame_over_the_limit_closes_the_socket(subtests: pytest.Subtests, settings: Any) -> None:
    for text in ["x" * 1025, "ü" * 513]:
        with subtests.test(text=text):
            limit(settings, BODY=1024)
            socket = await open_socket(RecordingServer())
            socket.put(text=text)
            socket.call("add", a=1, b=2)
            assert (await socket.closed())[0] == 1009


async def test_frames_sent_with_the_handshake_are_served() -> None:
    recorder = RecordingServer()
    socket = Socket(recorder.app)
    socket.call("add", a=1, b=2)
    await socket.accepted()
    assert (await socket.message())["result"]["structuredContent"] == {"result": 3}
    await disconnect(socket)


async def test_thousands_of_frames_at_once_do_not_block_others() -> None:
    recorder = RecordingServer()
    busy, other = await open_socket(recorder), await open_socket(recorder)
    for _ in range(3000):
        busy.put(text='{"jsonrpc": "2.0", "id": 1, "method": "ping"}')
    assert await other.value("add", a=1, b=2) == 3
    assert busy._coming.qsize() > 1000
    await disconnect(other)
    await disconnect(busy)


async def test_a_burst_of_quick_calls_is_served() -> None:
    socket = await open_socket(RecordingServer())
    for _ in range(200):
        socket.call("add", a=1, b=2)
    for _ in range(200):
        assert (await socket.message())["result"]["structuredContent"] == {"result": 3}
    await disconnect(socket)


async def test_calls_do_not_wait_for_one_another() -> None:
    recorder = RecordingServer()
    socket = await open_socket(recorder)
    slow = socket.call("wait")
    await recorder.until("call runs")
    quick = socket.call("add", a=1, b=2)
    assert (await socket.message())["id"] == quick
    recorder.gate.set()
    assert (await socket.message())["id"] == slow
    await disconnect(socket)


async def test_a_cancellation_overtakes_its_call() -> None:
    recorder = RecordingServer()
    socket = await open_socket(recorder)
    slow = socket.call("wait")
    await recorder.until("call runs")
    socket.notify("notifications/cancelled", requestId=slow)
    await recorder.until("call cancelled")
    assert await socket.value("add", a=1, b=2) == 3  # the other call has no response
    await disconnect(socket)


async def test_a_cancellation_overtakes_requests_that_wait_for_a_slow_reader(settings: Any) -> None:
    limit(settings, SEND_BUFFER=2)
    recorder = RecordingServer()
    socket = await open_socket(recorder)
    slow = socket.call("wait")
    await recorder.until("call runs")
    socket.stop_reading()
    for number in range(10):
        socket.call("add", a=number, b=0)
    await socket.stuck.wait()
    socket.notify("notifications/cancelled", requestId=slow)
    await recorder.until("call cancelled")
    socket.read_on()
    assert [(await socket.message())["result"]["structuredContent"]["result"] for _ in range(10)] == list(range(10))
    await disconnect(socket)


async def test_a_call_over_the_limit_waits_for_another_to_end(settings: Any) -> None:
    limit(settings, IN_FLIGHT=2)
    recorder = RecordingServer()
    socket = await open_socket(recorder)
    ids = []
    for name in "ab":
        ids.append(socket.call("wait", name=name))
        await recorder.until(f"{name} runs")
    waiting = socket.call("add", a=1, b=2)
    socket.notify("notifications/cancelled", requestId=ids[0])
    answer = await socket.message()
    assert (answer["id"], answer["result"]["structuredContent"]) == (waiting, {"result": 3})
    await disconnect(socket)


# Ends


async def test_a_disconnect_ends_the_calls_and_the_session(subtests: pytest.Subtests) -> None:
    for code in [1000, 1005, 1006]:
        with subtests.test(code=code):
            recorder = RecordingServer()
            socket = await open_socket(recorder)
            await socket.handshake()
            session = await Session.objects.aget(terminated_at=None)
            socket.call("wait")
            await recorder.until("call runs")
            socket.leave(code)
            await socket.finish()
            await recorder.until("call cancelled")
            await session.arefresh_from_db()
            assert session.terminated_at is not None


async def test_a_disconnect_is_noticed_while_send_is_stuck(settings: Any) -> None:
    limit(settings, SEND_BUFFER=2)
    recorder = RecordingServer()
    socket = await open_socket(recorder)
    await socket.handshake()
    socket.call("flood", times=100)
    await recorder.until("flood runs")
    socket.stop_reading()
    await socket.stuck.wait()
    for number in range(5):
        socket.call("add", a=number, b=0)  # they wait as well
    socket.disconnect()  # and `send` still waits
    await socket.finish()
    await recorder.until("flood ended")


async def test_a_send_that_raises_ends_calls(subtests: pytest.Subtests, caplog: pytest.LogCaptureFixture) -> None:
    for problem in [ConnectionResetError(), RuntimeError("after sending 'websocket.close'"), OSError()]:
        with subtests.test(problem=problem):
            recorder = RecordingServer()
            socket = await open_socket(recorder)
            socket.call("wait")
            await recorder.until("call runs")
            socket.failure = problem
            socket.call("add", a=1, b=2)
            await socket.finish()
            await recorder.until("call cancelled")
            assert not [record for record in caplog.records if record.levelno >= logging.WARNING]


async def test_a_server_that_cancels_the_application_ends_calls_and_sessions() -> None:
    recorder = RecordingServer()
    socket = await open_socket(recorder)
    await socket.handshake()
    socket.call("wait")
    await recorder.until("call runs")
    socket.task.cancel()
    closing = await socket.event()
    assert closing is not None
    assert (closing["type"], closing["code"]) == ("websocket.close", 1001)
    with pytest.raises(asyncio.CancelledError):
        await socket.task
    await recorder.until("call cancelled")
    assert not await Session.objects.filter(terminated_at=None).aexists()


async def test_the_socket_of_a_client_that_reads_nothing_is_closed(settings: Any, clock: Clock) -> None:
    limit(settings, SEND_BUFFER=2, SEND_TIMEOUT=20, KEEP_ALIVE=15)
    recorder = RecordingServer()
    socket = await open_socket(recorder)
    await socket.handshake()
    socket.call("flood", times=1000)
    await recorder.until("flood runs")
    socket.stop_reading()
    await clock.advance_until(lambda: "flood ended" in recorder.events)
    await clock.advance_until(socket.task.done)
    await socket.finish()


async def test_a_slow_client_that_reads_again_gets_the_close_reason(settings: Any, clock: Clock) -> None:
    limit(settings, SEND_BUFFER=2, SEND_TIMEOUT=20, KEEP_ALIVE=15)
    recorder = RecordingServer()
    socket = await open_socket(recorder)
    await socket.handshake()
    socket.call("flood", times=1000)
    await recorder.until("flood runs")
    socket.stop_reading()
    await clock.advance_until(lambda: "flood ended" in recorder.events)
    socket.read_on()
    assert (await socket.closed())[0] == 1013


async def test_a_shutdown_lets_calls_finish_and_closes_with_going_away() -> None:
    recorder = RecordingServer()
    socket = await open_socket(recorder)
    slow = socket.call("wait")
    await recorder.until("call runs")
    closing = await start_shutdown()
    try:
        socket.call("add", a=1, b=2)
        assert (await socket.message())["error"]["code"] == -32603
        recorder.gate.set()
        assert (await socket.message())["id"] == slow
        assert (await socket.closed())[0] == 1001
        await closing
    finally:
        await get_services().lifecycle.startup([])


async def test_a_shutdown_ends_subscriptions_with_their_result() -> None:
    recorder = RecordingServer()
    socket = await open_socket(recorder)
    listen = socket.start("subscriptions/listen", {"notifications": {"toolsListChanged": True}})
    assert (await socket.message())["method"] == "notifications/subscriptions/acknowledged"
    closing = await start_shutdown()
    try:
        assert (await socket.message())["id"] == listen
        assert (await socket.closed())[0] == 1001
        await closing
    finally:
        await get_services().lifecycle.startup([])


async def test_ending_a_session_in_the_admin_closes_the_socket() -> None:
    recorder = RecordingServer()
    socket = await open_socket(recorder)
    await socket.handshake()
    await sync_to_async(Session.objects.all().end)("by an operator")
    assert (await socket.closed())[0] == 4404


async def test_revoking_the_token_closes_the_socket(settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    settings.MCP = {"AUTH": PEOPLE, "TOKEN_CACHE_SECONDS": 0}
    recorder = RecordingServer()
    socket = await open_socket(recorder, {"authorization": "Bearer alice"})
    assert await socket.value("add", a=1, b=2) == 3
    socket.call("wait")
    await recorder.until("call runs")
    monkeypatch.setattr("tests.interaction.verifiers.KNOWN", ())
    socket.call("add", a=1, b=2)
    assert (await socket.closed())[0] == 4401
    await recorder.until("call cancelled")


async def test_a_token_that_loses_scopes_closes_the_socket(settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    settings.MCP = {"AUTH": PEOPLE, "TOKEN_CACHE_SECONDS": 0}
    recorder = RecordingServer()
    socket = await open_socket(recorder, {"authorization": "Bearer writer"})
    monkeypatch.setattr("tests.interaction.verifiers.SCOPES", {})
    socket.call("add", a=1, b=2)
    assert (await socket.closed())[0] == 4403


async def test_the_socket_of_a_client_that_answers_no_pings_is_closed(settings: Any, clock: Clock) -> None:
    limit(settings, PING=40, KEEP_ALIVE=10)
    recorder = RecordingServer()
    socket = await open_socket(recorder)
    await socket.handshake()
    asked = asyncio.ensure_future(socket.message())
    await clock.advance_until(asked.done)
    assert (await asked)["method"] == "ping"
    closed = asyncio.ensure_future(socket.closed())
    await clock.advance_until(closed.done)
    assert (await closed)[0] == 1001
