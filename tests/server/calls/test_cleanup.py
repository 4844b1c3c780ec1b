"""Cleanup functions of handlers, at the end of a session, or of a call without one."""

import asyncio
import contextlib
import logging
import threading
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from mcp_django import Context, Server, ToolError
from mcp_django.server.calls import cleanup as module
from mcp_django.server.calls.cleanup import CleanupCallbacks
from mcp_django.testing import TestClient, accept
from tests.server.client import HANDSHAKE, STATELESS, PipelineClient, make_server
from tests.server.client import ports as plain_ports
from tests.support.clock import Clock
from tests.support.waiting import eventually, turns


class EventLog:
    """A record of events, from any thread."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def write(self, line: str) -> None:
        self.lines.append(line)

    async def wait_for(self, *lines: str) -> None:
        await eventually(lambda: self.lines == list(lines), lambda: f"{self.lines}")


def server_of(log: EventLog, **given: Any) -> Server:
    """A server whose tool adds cleanup functions."""
    server = Server("tests", **{"ports": plain_ports(), **given})

    async def close(what: str) -> None:
        log.write(what)

    def close_plainly(what: str) -> None:
        log.write(what)

    @server.tool
    async def open_it(ctx: Context, how: str = "well") -> str:
        ctx.add_cleanup(close, "first")
        ctx.sync.add_cleanup(close_plainly, what="second")
        if how == "badly":
            raise ToolError("no")
        if how == "asking":
            await ctx.elicit("Sure?")
        log.write("ran")
        return "ran"

    return server


async def test_without_a_session_cleanup_runs_after_the_handler() -> None:
    for how, lines in [("well", ["ran", "second", "first"]), ("badly", ["second", "first"])]:
        log = EventLog()
        await TestClient(server_of(log)).call_tool("open_it", {"how": how})
        assert log.lines == lines


async def test_cleanup_runs_after_each_round_of_a_conversation() -> None:
    log = EventLog()
    client = TestClient(server_of(log), elicit=lambda params: accept(value=True))
    await client.call_tool("open_it", {"how": "asking"})
    assert log.lines == ["second", "first", "ran", "second", "first"]


async def test_cleanup_runs_when_the_handler_is_cancelled(clock: Clock) -> None:
    done = asyncio.Event()
    server = make_server(options={"timeout": 2})

    @server.tool
    async def wait(ctx: Context) -> None:
        ctx.add_cleanup(done.set)
        await asyncio.Event().wait()

    call = asyncio.ensure_future(TestClient(server).call_tool("wait"))
    await clock.advance(2)
    await call
    assert done.is_set()


async def test_in_a_session_cleanup_runs_at_the_end_of_the_session() -> None:
    log = EventLog()
    peer = PipelineClient(server_of(log), version=HANDSHAKE)
    assert await peer.text("open_it") == "ran"
    assert log.lines == ["ran"]
    assert peer.session is not None
    peer.session.discard()
    await log.wait_for("ran", "second", "first")
    with pytest.raises(RuntimeError, match="already ended"):
        peer.session.cleanup_callbacks.add(asyncio.get_running_loop(), peer.server.ports.executor, log.write, "late")


def test_a_plain_cleanup_function_runs_on_a_thread() -> None:
    server, seen = make_server(), list[str]()

    @server.tool
    async def leave(ctx: Context) -> None:
        ctx.add_cleanup(lambda: seen.append(threading.current_thread().name))

    asyncio.run(TestClient(server).request("tools/call", {"name": "leave"}))
    assert [name.startswith("mcp-thread") for name in seen] == [True]


async def test_cleanup_runs_at_shutdown() -> None:
    log, at_end = EventLog(), list[Callable[[], Awaitable[None]]]()
    server = server_of(log, ports=plain_ports(add_shutdown_callback=at_end.append))
    peers = [PipelineClient(server, version=HANDSHAKE) for _ in range(2)]
    for peer in peers:
        await peer.call("open_it")
    await turns(1)
    (work,) = at_end
    await work()
    assert sorted(log.lines[2:]) == ["first", "first", "second", "second"]
    for peer in peers:
        assert peer.session is not None
        peer.session.discard()
    await turns(1)
    assert len(log.lines) == 6, "once is enough"


async def test_a_failed_cleanup_is_logged_and_the_others_run(caplog: pytest.LogCaptureFixture) -> None:
    server, log = make_server(), EventLog()

    def fail() -> None:
        raise LookupError("oh")

    @server.tool
    async def leave(ctx: Context) -> None:
        ctx.add_cleanup(log.write, "done")
        ctx.add_cleanup(fail)

    await TestClient(server).call_tool("leave")
    assert log.lines == ["done"]
    assert "Cleanup callback failed" in caplog.text


async def test_cleanup_over_its_timeout_is_abandoned(clock: Clock, caplog: pytest.LogCaptureFixture) -> None:
    server, log = make_server(), EventLog()

    @server.tool
    async def leave(ctx: Context) -> None:
        ctx.add_cleanup(log.write, "done")
        ctx.add_cleanup(asyncio.Event().wait)

    call = asyncio.ensure_future(TestClient(server).call_tool("leave"))
    await clock.advance(module.CLEANUP_TIMEOUT_SECONDS - 0.001)
    assert log.lines == []
    await clock.advance(0.001)
    await eventually(call.done)  # a log record goes through a thread
    assert log.lines == ["done"]
    assert "timed out after 5 s" in caplog.text


def test_cleanup_on_a_closed_loop_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    left = CleanupCallbacks()
    loop = asyncio.new_event_loop()
    left.add(loop, make_server().ports.executor, print)
    loop.close()
    with caplog.at_level(logging.WARNING):
        left.schedule()
    assert "Cleanup callbacks skipped" in caplog.text


async def test_cleanup_that_is_not_callable_or_outside_of_a_call_is_refused() -> None:
    server, seen = make_server(), []

    @server.tool
    async def leave(ctx: Context, what: str) -> None:
        with contextlib.suppress(TypeError, RuntimeError):
            if what == "WSGI":
                ctx.call.connection.supports_streaming = False
            ctx.add_cleanup(None if what == "nothing" else print)  # type: ignore[arg-type]
            return
        seen.append(what)

    for version in (HANDSHAKE, STATELESS):
        for what in ("nothing", "WSGI"):
            await PipelineClient(server, version=version).call("leave", what=what)
    assert seen == ["nothing", "WSGI", "nothing"]
