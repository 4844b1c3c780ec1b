"""What handlers leave for the end of a session, or of a call without one."""

import asyncio
import contextlib
import logging
import threading
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from django.utils import timezone

from mcp_django import Context, Server, ToolError
from mcp_django.models import Session as SessionRow
from mcp_django.server import farewells as module
from mcp_django.server.farewells import Farewells
from mcp_django.server.session import Session
from mcp_django.testing import Client, accept
from mcp_django.wiring import ports
from tests.server.engine import HANDSHAKE, STATELESS, Peer, make_server
from tests.server.engine import ports as plain_ports


class Diary:
    """What was done, and a way to wait for it."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self._loop = asyncio.get_running_loop()
        self._written = asyncio.Event()

    def write(self, line: str) -> None:
        self.lines.append(line)
        self._loop.call_soon_threadsafe(self._written.set)

    async def until(self, *lines: str) -> None:
        async with asyncio.timeout(10):
            while self.lines != list(lines):
                await self._written.wait()
                self._written.clear()


def server_of(diary: Diary, **given: Any) -> Server:
    """A server whose tool leaves things for the end."""
    server = Server("tests", **{"ports": plain_ports(), **given})

    async def close(what: str) -> None:
        diary.write(what)

    def close_plainly(what: str) -> None:
        diary.write(what)

    @server.tool
    async def open_it(ctx: Context, how: str = "well") -> str:
        ctx.at_end(close, "first")
        ctx.sync.at_end(close_plainly, what="second")
        if how == "badly":
            raise ToolError("no")
        if how == "asking":
            await ctx.elicit("Sure?")
        diary.write("ran")
        return "ran"

    return server


@pytest.mark.parametrize("how", ["well", "badly"])
async def test_without_a_session_it_is_done_when_the_handler_is(how: str) -> None:
    diary = Diary()
    await Client(server_of(diary)).call_tool("open_it", {"how": how})
    assert diary.lines == [*(["ran"] if how == "well" else []), "second", "first"]


async def test_each_round_of_a_conversation_has_its_own_end() -> None:
    diary = Diary()
    client = Client(server_of(diary), elicit=lambda params: accept(value=True))
    await client.call_tool("open_it", {"how": "asking"})
    assert diary.lines == ["second", "first", "ran", "second", "first"]


async def test_it_is_done_when_the_handler_is_cancelled() -> None:
    done = asyncio.Event()
    server = make_server(options={"timeout": 0.01})

    @server.tool
    async def wait(ctx: Context) -> None:
        ctx.at_end(done.set)
        await asyncio.Event().wait()

    await Client(server).call_tool("wait")
    assert done.is_set()


async def test_in_a_session_it_waits_for_the_end_of_the_session() -> None:
    diary = Diary()
    peer = Peer(server_of(diary), version=HANDSHAKE)
    assert await peer.text("open_it") == "ran"
    assert diary.lines == ["ran"]
    assert peer.session is not None
    peer.session.leave()
    await diary.until("ran", "second", "first")
    with pytest.raises(RuntimeError, match="over already"):
        peer.session.farewells.add(asyncio.get_running_loop(), peer.server.executor, diary.write, "late")


async def _deleted(session: Session, client: Client) -> None:
    await client.close()


async def _in_the_admin(session: Session, client: Client) -> None:
    await sync_to_async(SessionRow.objects.filter(pk=session.pk).end)("admin")


async def _expired(session: Session, client: Client) -> None:
    past = timezone.now() - timedelta(seconds=1)
    await SessionRow.objects.filter(pk=session.pk).aupdate(expires=past)
    assert await client.server.sessions.load(session.key, session.owner) is None


def test_on_a_loop_of_its_own_a_plain_function_is_done_on_a_lane() -> None:
    server, seen = make_server(), list[str]()

    @server.tool
    async def leave(ctx: Context) -> None:
        ctx.at_end(lambda: seen.append(threading.current_thread().name))

    asyncio.run(Client(server).request("tools/call", {"name": "leave"}))
    assert [name.startswith("mcp-lane") for name in seen] == [True]


@pytest.mark.django_db
@pytest.mark.parametrize("end", [_deleted, _in_the_admin, _expired], ids=["client", "admin", "lifetime"])
async def test_however_a_session_ends_it_is_done(end: Callable[[Session, Client], Awaitable[None]]) -> None:
    diary = Diary()
    client = Client(server_of(diary, ports=ports()), revision=HANDSHAKE)
    await client.call_tool("open_it")
    assert client.session is not None
    await end(client.session, client)
    await diary.until("ran", "second", "first")


async def test_the_end_of_the_process_is_an_end_too() -> None:
    diary, at_end = Diary(), list[Callable[[], Awaitable[None]]]()
    server = server_of(diary, ports=plain_ports(at_end=at_end.append))
    peers = [Peer(server, version=HANDSHAKE) for _ in range(2)]
    for peer in peers:
        await peer.call("open_it")
    await asyncio.sleep(0)
    (work,) = at_end
    await work()
    assert sorted(diary.lines[2:]) == ["first", "first", "second", "second"]
    for peer in peers:
        assert peer.session is not None
        peer.session.leave()
    await asyncio.sleep(0)
    assert len(diary.lines) == 6, "once is enough"


async def test_a_failure_is_logged_and_keeps_nothing_else_from_being_done(caplog: pytest.LogCaptureFixture) -> None:
    server, diary = make_server(), Diary()

    def fail() -> None:
        raise LookupError("oh")

    @server.tool
    async def leave(ctx: Context) -> None:
        ctx.at_end(diary.write, "done")
        ctx.at_end(fail)

    await Client(server).call_tool("leave")
    assert diary.lines == ["done"]
    assert "What was left for an end failed" in caplog.text


async def test_what_takes_too_long_is_given_up(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(module, "PATIENCE", 0.01)
    server, diary = make_server(), Diary()

    @server.tool
    async def leave(ctx: Context) -> None:
        ctx.at_end(diary.write, "done")
        ctx.at_end(asyncio.Event().wait)

    await Client(server).call_tool("leave")
    assert diary.lines == ["done"]
    assert "took longer than 0.01 seconds" in caplog.text


def test_a_loop_that_has_ended_leaves_a_line_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    left = Farewells()
    loop = asyncio.new_event_loop()
    left.add(loop, make_server().executor, print)
    loop.close()
    with caplog.at_level(logging.WARNING):
        left.say()
    assert "Left undone" in caplog.text


async def test_what_cannot_be_called_and_where_nothing_lasts_are_refused() -> None:
    server, seen = make_server(), []

    @server.tool
    async def leave(ctx: Context, what: str) -> None:
        with contextlib.suppress(TypeError, RuntimeError):
            if what == "WSGI":
                ctx._call.connection.streams = False
            ctx.at_end(None if what == "nothing" else print)  # type: ignore[arg-type]
            return
        seen.append(what)

    for version in (HANDSHAKE, STATELESS):
        for what in ("nothing", "WSGI"):
            await Peer(server, version=version).call("leave", what=what)
    assert seen == ["nothing", "WSGI", "nothing"]
