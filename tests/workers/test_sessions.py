"""A session that ends on one worker ends on all of them, and it survives a restart of all workers."""

import asyncio
import hashlib
import json
from contextlib import AsyncExitStack

import pytest

from tests.servers.client import HANDSHAKE
from tests.servers.databases import count
from tests.support.waiting import WAIT_SECONDS, eventually
from tests.workers.client import Refused, Stream, UserClient
from tests.workers.event_log import NumberedMessage
from tests.workers.harness import Workers, workers
from tests.workers.listeners import read
from tests.workers.unreliable_layer import DeliveryFaults


@pytest.fixture(params=["wakes", "no wakes"])
def either(request: pytest.FixtureRequest, pair: Workers) -> Workers:
    """The two workers, once with and once without wakes."""
    if request.param == "no wakes":
        pair.set_faults(DeliveryFaults(lost=1))
    return pair


async def opened(stack: AsyncExitStack, user: UserClient, port: int, last_event_id: str | None = None) -> Stream:
    """The session's stream, open."""
    stream: Stream = await stack.enter_async_context(user.listen(port, last_event_id))
    assert stream.status == 200, stream.status
    return stream


async def begun(stack: AsyncExitStack, user: UserClient, port: int, tag: str) -> Stream:
    """A long call that has sent a message."""
    stream: Stream = await stack.enter_async_context(user.call(port, "linger", {"tag": tag}))
    assert stream.status == 200
    return stream


async def rest(stream: Stream) -> list[object]:
    """Read a stream to its end. Raises TimeoutError without one."""
    async with asyncio.timeout(WAIT_SECONDS):
        found: list[object] = [message async for message in stream.messages()]
    assert stream.ended
    return found


async def refusal(user: UserClient, port: int) -> int:
    """The status of a request, once it is refused. Raises TimeoutError when it never is."""
    async with asyncio.timeout(WAIT_SECONDS):
        while True:
            try:
                await user.result(port, "ping")
            except Refused as refused:
                return refused.status
            await asyncio.sleep(0.01)


async def test_a_session_that_is_deleted_on_one_worker_is_unknown_on_the_other(either: Workers) -> None:
    here, there = either.ports
    async with AsyncExitStack() as stack:
        user = await UserClient.initialized("leaving", here)
        assert await user.result(there, "ping") == {}
        tag = f"leaving-{user.key}"
        listening, calling = await opened(stack, user, there), await begun(stack, user, there, tag)
        assert await user.delete(here) in (200, 204)
        assert await refusal(user, there) == 404
        assert await rest(listening) == []
        assert [m for m in await rest(calling) if "result" in m] == []
        await asyncio.to_thread(either.event, tag, "cancelled")
        async with user.listen(there) as again:
            assert again.status == 404


@pytest.mark.parametrize(
    ("lost", "how"),
    [(0, 'end("ended by hand")'), (1, "delete()[1]['mcp_django.Session']")],
    ids=["ended", "deleted, no wakes"],
)
async def test_a_session_ended_by_another_process_has_ended_on_all_workers(
    pair: Workers, lost: float, how: str
) -> None:
    """As the actions of the admin do, in a process without a server."""
    pair.set_faults(DeliveryFaults(lost=lost))
    async with AsyncExitStack() as stack:
        user = await UserClient.initialized("thrown-out", pair.ports[0])
        tags = [f"thrown-{number}-{user.key}" for number, _ in enumerate(pair.ports)]
        streams = [await opened(stack, user, pair.ports[1])]
        for tag, port in zip(tags, pair.ports, strict=True):
            streams.append(await begun(stack, user, port, tag))
        code = f"""
            from mcp_django.models import Session
            print(Session.objects.filter(owner__contains="thrown-out", terminated_at=None).{how})
        """
        assert int(await asyncio.to_thread(pair.run, code)) == 1
        for port in pair.ports:
            assert await refusal(user, port) == 404
        for stream in streams:
            assert [m for m in await rest(stream) if "result" in m] == []
        for tag in tags:
            await asyncio.to_thread(pair.event, tag, "cancelled")


async def test_a_cancellation_on_the_other_worker_cancels_the_call(either: Workers) -> None:
    here, there = either.ports
    async with AsyncExitStack() as stack:
        user = await UserClient.initialized("fickle", here)
        gone, stays = f"gone-{user.key}", f"stays-{user.key}"
        cancelled = await begun(stack, user, here, gone)
        id = user.last_id
        await stack.enter_async_context(user.call(here, "linger", {"tag": stays}))
        assert await user.notify(there, "notifications/cancelled", {"requestId": id}) == 202
        await asyncio.to_thread(either.event, gone, "cancelled")
        assert [m for m in await rest(cancelled) if "method" not in m] == [], "no further message of the call"
        assert not either.servers[0].events(stays, "cancelled")
        await user.delete(here)


async def test_a_session_cannot_cancel_the_call_of_another(pair: Workers) -> None:
    here, there = pair.ports
    async with AsyncExitStack() as stack:
        user = await UserClient.initialized("working", here)
        tag = f"working-{user.key}"
        calling: Stream = await stack.enter_async_context(user.call(here, "count", {"tag": tag, "times": 30}))
        other = await UserClient.initialized("meddling", there)
        await other.notify(there, "notifications/cancelled", {"requestId": user.last_id})
        assert "result" in (await rest(calling))[-1]  # type: ignore[operator]


async def test_a_log_level_set_on_one_worker_applies_on_the_other(either: Workers) -> None:
    here, there = either.ports
    user = await UserClient.initialized("quiet", here)
    assert await spoken(user, there) > 0
    await user.result(here, "logging/setLevel", {"level": "error"})
    async with asyncio.timeout(WAIT_SECONDS):
        while await spoken(user, there):
            await asyncio.sleep(0.01)


async def spoken(user: UserClient, port: int) -> int:
    """Count the log messages of a call."""
    async with user.call(port, "count", {"tag": "spoken", "times": 3, "pause": 0}) as stream:
        return len([m async for m in stream.messages() if m.get("method") == "notifications/message"])


@pytest.mark.parametrize("kill", [False, True], ids=["told to end", "killed"])
async def test_a_restart_of_all_workers_keeps_sessions_and_messages(own_pair: Workers, kill: bool) -> None:
    user = await UserClient.initialized("patient", own_pair.ports[0], HANDSHAKE)
    await user.result(own_pair.ports[0], "resources/subscribe", {"uri": "item://restart/1"})
    await user.result(own_pair.ports[0], "resources/subscribe", {"uri": "item://restart/2"})
    async with user.listen(own_pair.ports[0]) as stream:
        assert stream.status == 200
        first = await anext(aiter(stream.events()))
    assert first.id is not None
    for server in list(own_pair.servers):
        await asyncio.to_thread(own_pair.stop, server, kill=kill)
    code = """
        from mcp_django.notifications import notify_resource_updated
        notify_resource_updated("item://restart/1")
    """
    await asyncio.to_thread(own_pair.run, code)
    await asyncio.to_thread(own_pair.start)
    (port,) = own_pair.ports
    assert await user.value(port, "pid") == own_pair.pid(port)
    await user.value(port, "change", {"source": "restart", "number": 2})
    async with asyncio.timeout(WAIT_SECONDS), user.listen(port, first.id) as stream:
        received = []
        async for event in stream.events():
            if event.data:
                received.append(read(json.loads(event.data))[0])
            if len(received) == 2:
                break
    assert received == [NumberedMessage("restart", 1), NumberedMessage("restart", 2)]


async def test_a_stream_resumed_after_a_deploy_is_notified_of_changed_lists(shared: Workers) -> None:
    with workers(shared.database, shared.redis, many=1) as own:
        user = await UserClient.initialized("updated", own.ports[0])
        tools = await user.result(own.ports[0], "tools/list")
        assert "from_the_next_release" not in [tool["name"] for tool in tools["tools"]]
        async with AsyncExitStack() as stack:
            stream = await opened(stack, user, own.ports[0])
            last = (await anext(stream.events())).id
            await stored_digests(shared, user)
            await asyncio.to_thread(own.stop, own.servers[0], kill=False)

        own.start(environ={"SITE_RELEASE": "next"})
        async with AsyncExitStack() as stack, asyncio.timeout(WAIT_SECONDS):
            stream = await opened(stack, user, own.ports[0], last)
            message = await anext(stream.messages())
        assert message["method"] == "notifications/tools/list_changed"


async def stored_digests(workers: Workers, user: UserClient) -> None:
    """Wait until the row of the session has the digest of a list."""
    assert user.key is not None
    digest = hashlib.sha256(user.key.encode()).hexdigest()
    assert count(workers.database, "mcp_django_session", f"key_hash = '{digest}'") == 1
    await eventually(
        lambda: count(workers.database, "mcp_django_session", f"key_hash = '{digest}' AND lists::text LIKE '%tools%'")
    )
