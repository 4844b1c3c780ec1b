"""What ends on one worker has ended on all of them, and what a server forgets when it restarts is not the session."""

import asyncio
import json
from contextlib import AsyncExitStack

import pytest

from tests.servers.client import HANDSHAKE
from tests.workers.client import Person, Refused, Stream
from tests.workers.harness import Workers
from tests.workers.hearing import read
from tests.workers.layers import Fate
from tests.workers.ledger import Said

SOON = 9.0
"""Seconds within which other workers have noticed, wakes or none."""


@pytest.fixture(params=["wakes", "no wakes"])
def either(request: pytest.FixtureRequest, pair: Workers) -> Workers:
    """The two workers, once with and once without wakes."""
    if request.param == "no wakes":
        pair.wakes(Fate(lost=1))
    return pair


async def opened(stack: AsyncExitStack, person: Person, port: int, last_event_id: str | None = None) -> Stream:
    """The session's stream, open."""
    stream: Stream = await stack.enter_async_context(person.listen(port, last_event_id))
    assert stream.status == 200, stream.status
    return stream


async def begun(stack: AsyncExitStack, person: Person, port: int, tag: str) -> Stream:
    """A call that takes long and has said something."""
    stream: Stream = await stack.enter_async_context(person.call(port, "linger", {"tag": tag}))
    assert stream.status == 200
    return stream


async def rest(stream: Stream, within: float = SOON) -> list[object]:
    """What a stream says to its end, which must come soon. Raises TimeoutError when it does not."""
    async with asyncio.timeout(within):
        found: list[object] = [message async for message in stream.messages()]
    assert stream.ended
    return found


async def refusal(person: Person, port: int) -> int:
    """The status of a request, once it is refused. Raises TimeoutError when it never is."""
    async with asyncio.timeout(SOON):
        while True:
            try:
                await person.result(port, "ping")
            except Refused as refused:
                return refused.status
            await asyncio.sleep(0.01)


async def test_a_session_that_is_deleted_on_one_worker_is_unknown_on_the_other(either: Workers) -> None:
    here, there = either.ports
    async with AsyncExitStack() as stack:
        person = await Person.initialized("leaving", here)
        assert await person.result(there, "ping") == {}
        tag = f"leaving-{person.key}"
        listening, calling = await opened(stack, person, there), await begun(stack, person, there, tag)
        assert await person.delete(here) in (200, 204)
        assert await refusal(person, there) == 404
        assert await rest(listening) == []
        assert [m for m in await rest(calling) if "result" in m] == []
        await asyncio.to_thread(either.event, tag, "cancelled", within=SOON)
        async with person.listen(there) as again:
            assert again.status == 404


@pytest.mark.parametrize("how", ['end("ended by hand")', "delete()[1]['mcp_django.Session']"], ids=["ended", "deleted"])
async def test_a_session_that_another_process_ends_has_ended_on_all_workers(either: Workers, how: str) -> None:
    """What the admin's actions do, in a process that serves nobody."""
    async with AsyncExitStack() as stack:
        person = await Person.initialized("thrown-out", either.ports[0])
        tags = [f"thrown-{number}-{person.key}" for number, _ in enumerate(either.ports)]
        streams = [await opened(stack, person, either.ports[1])]
        for tag, port in zip(tags, either.ports, strict=True):
            streams.append(await begun(stack, person, port, tag))
        code = f"""
            from mcp_django.models import Session
            print(Session.objects.filter(owner__contains="thrown-out", terminated_at=None).{how})
        """
        assert int(await asyncio.to_thread(either.run, code)) == 1
        for port in either.ports:
            assert await refusal(person, port) == 404
        for stream in streams:
            assert [m for m in await rest(stream) if "result" in m] == []
        for tag in tags:
            await asyncio.to_thread(either.event, tag, "cancelled", within=SOON)


async def test_a_cancellation_that_lands_on_the_other_worker_cancels(either: Workers) -> None:
    here, there = either.ports
    async with AsyncExitStack() as stack:
        person = await Person.initialized("fickle", here)
        gone, stays = f"gone-{person.key}", f"stays-{person.key}"
        cancelled = await begun(stack, person, here, gone)
        id = person.last_id
        await stack.enter_async_context(person.call(here, "linger", {"tag": stays}))
        assert await person.notify(there, "notifications/cancelled", {"requestId": id}) == 202
        await asyncio.to_thread(either.event, gone, "cancelled", within=SOON)
        assert [m for m in await rest(cancelled) if "method" not in m] == [], "nothing more is said of it"
        assert not either.servers[0].events(stays, "cancelled")
        await person.delete(here)


async def test_nobody_else_s_call_is_cancelled(pair: Workers) -> None:
    here, there = pair.ports
    async with AsyncExitStack() as stack:
        person = await Person.initialized("working", here)
        tag = f"working-{person.key}"
        calling: Stream = await stack.enter_async_context(person.call(here, "count", {"tag": tag, "times": 30}))
        other = await Person.initialized("meddling", there)
        await other.notify(there, "notifications/cancelled", {"requestId": person.last_id})
        assert "result" in (await rest(calling, 30))[-1]  # type: ignore[operator]


async def test_a_log_level_that_is_set_on_one_worker_holds_on_the_other(either: Workers) -> None:
    here, there = either.ports
    person = await Person.initialized("quiet", here)
    assert await spoken(person, there) > 0
    await person.result(here, "logging/setLevel", {"level": "error"})
    async with asyncio.timeout(SOON):
        while await spoken(person, there):
            await asyncio.sleep(0.01)


async def spoken(person: Person, port: int) -> int:
    """How many log messages a call sends."""
    async with person.call(port, "count", {"tag": "spoken", "times": 3, "pause": 0}) as stream:
        return len([m async for m in stream.messages() if m.get("method") == "notifications/message"])


@pytest.mark.parametrize("kill", [False, True], ids=["told to end", "killed"])
async def test_a_restart_of_all_workers_keeps_sessions_and_what_is_said_meanwhile(fresh: Workers, kill: bool) -> None:
    person = await Person.initialized("patient", fresh.ports[0], HANDSHAKE)
    await person.result(fresh.ports[0], "resources/subscribe", {"uri": "item://restart/1"})
    await person.result(fresh.ports[0], "resources/subscribe", {"uri": "item://restart/2"})
    async with person.listen(fresh.ports[0]) as stream:
        assert stream.status == 200
        first = await anext(aiter(stream.events()))
    assert first.id is not None
    for server in list(fresh.servers):
        await asyncio.to_thread(fresh.stop, server, kill=kill)
    code = """
        from mcp_django.notifications import notify_resource_updated
        notify_resource_updated("item://restart/1")
    """
    await asyncio.to_thread(fresh.run, code)
    await asyncio.to_thread(fresh.start)
    (port,) = fresh.ports
    assert await person.value(port, "pid") == fresh.pid(port)
    await person.value(port, "change", {"source": "restart", "number": 2})
    async with asyncio.timeout(SOON), person.listen(port, first.id) as stream:
        heard = []
        async for event in stream.events():
            if event.data:
                heard.append(read(json.loads(event.data))[0])
            if len(heard) == 2:
                break
    assert heard == [Said("restart", 1), Said("restart", 2)]
