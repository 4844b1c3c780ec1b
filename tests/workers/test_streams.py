"""One stream at a time, whichever worker serves it; and a stream is its owner's on every worker."""

import asyncio
import json
from contextlib import AsyncExitStack

from tests.support.waiting import WAIT_SECONDS, eventually
from tests.workers.client import UserClient
from tests.workers.event_log import NumberedMessage
from tests.workers.harness import Workers
from tests.workers.listeners import read


async def test_a_stream_opened_on_the_other_worker_replaces_the_first(pair: Workers) -> None:
    here, there = pair.ports
    user = await UserClient.initialized("moving", here)
    async with AsyncExitStack() as stack:
        first = await stack.enter_async_context(user.listen(here))
        second = await stack.enter_async_context(user.listen(there))
        assert (first.status, second.status) == (200, 200)
        async with asyncio.timeout(WAIT_SECONDS):
            assert [message async for message in first.messages()] == []
        assert first.ended
        for number, port in enumerate(pair.ports):
            await user.value(port, "send_private", {"source": "moved", "number": number})
        messages = second.messages()
        async with asyncio.timeout(WAIT_SECONDS):
            received = [read(await anext(messages))[0] for _ in pair.ports]
        assert received == [NumberedMessage("moved", 0), NumberedMessage("moved", 1)]


async def test_only_its_owner_resumes_a_stream_on_any_worker(pair: Workers) -> None:
    here, there = pair.ports
    user, other = [await UserClient.initialized(name, here) for name in ("owner", "stranger")]
    async with AsyncExitStack() as stack:
        own = await stack.enter_async_context(user.listen(here))
        call = await stack.enter_async_context(user.call(here, "count", {"tag": "owned", "times": 2}))
        ids = [(await anext(stream.events())).id for stream in (own, call)]
        for id in ids:
            assert id is not None
            last = "A" if id[-1] != "A" else "B"
            for port in (here, there):
                assert await resumed(other, port, id) == 400
                assert await resumed(user, port, id[:-1] + last) == 400
                assert await resumed(user, port, id) == 200


async def resumed(user: UserClient, port: int, id: str) -> int:
    """The status of an attempt to go on after an event."""
    async with asyncio.timeout(WAIT_SECONDS), user.listen(port, id) as stream:
        status: int = stream.status
        return status


async def test_a_client_that_resumes_a_call_gets_an_error_when_its_worker_is_killed(
    own_pair: Workers,
) -> None:
    """The stream ends after the messages that the call had sent, and the call is gone."""
    here, there = own_pair.ports
    user = await UserClient.initialized("following", here)
    async with user.call(here, "count", {"tag": "followed", "times": 1000}) as stream:
        first = await anext(stream.events())
        assert first.id is not None
    numbers: list[int] = []
    async with asyncio.timeout(WAIT_SECONDS), user.listen(there, first.id) as stream:
        assert stream.status == 200
        async for event in stream.events():
            if event.data:
                params = json.loads(event.data)["params"]
                numbers.append(params["data"]["number"] if "data" in params else params["progress"])
                last = event.id
            if len(numbers) == 3 and len(own_pair.servers) == 2:
                await asyncio.to_thread(own_pair.stop, own_pair.servers[0], kill=True)
        assert stream.ended
    assert numbers == list(range(numbers[0], numbers[0] + len(numbers)))
    assert numbers[0] in (1, 2)
    assert await resumed(user, there, last) in (400, 404)


async def test_a_lost_response_survives_the_end_of_its_worker(own_pair: Workers) -> None:
    """The last bytes were in the network when the connection broke."""
    here, there = own_pair.ports
    user = await UserClient.initialized("deployed", here)
    async with user.call(here, "count", {"tag": "deployed", "times": 4, "pause": 0}) as stream:
        first = await anext(stream.events())
        own_pair.event("deployed", "ended")
        await eventually(lambda: not own_pair.servers[0].probe()["in_flight"])
        stream.cut(reset=True)
    await asyncio.to_thread(own_pair.stop, own_pair.servers[0], kill=False)

    assert first.id is not None
    async with asyncio.timeout(WAIT_SECONDS), user.listen(there, first.id) as stream:
        assert stream.status == 200
        messages = [message async for message in stream.messages()]
    assert stream.ended
    assert [message["method"] for message in messages[:-1]][-3:] == [
        "notifications/progress",
        "notifications/message",
        "notifications/progress",
    ]
    assert "result" in messages[-1]
