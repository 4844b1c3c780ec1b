"""One stream at a time, whichever worker serves it; and a stream is its owner's on every worker."""

import asyncio
import json
from contextlib import AsyncExitStack

from tests.workers.client import Person
from tests.workers.harness import Workers
from tests.workers.hearing import read
from tests.workers.ledger import Said

SOON = 20.0
GONE_WITHIN = 15.0
"""Seconds, of a few keep-alives and a few questions for whoever has the call."""


async def test_a_stream_that_is_opened_on_the_other_worker_takes_the_place_of_the_first(pair: Workers) -> None:
    here, there = pair.ports
    person = await Person.initialized("moving", here)
    async with AsyncExitStack() as stack:
        first = await stack.enter_async_context(person.listen(here))
        second = await stack.enter_async_context(person.listen(there))
        assert (first.status, second.status) == (200, 200)
        async with asyncio.timeout(SOON):
            assert [message async for message in first.messages()] == []
        assert first.ended
        for number, port in enumerate(pair.ports):
            await person.value(port, "tell", {"source": "moved", "number": number})
        messages = second.messages()
        async with asyncio.timeout(SOON):
            heard = [read(await anext(messages))[0] for _ in pair.ports]
        assert heard == [Said("moved", 0), Said("moved", 1)]


async def test_nobody_else_resumes_a_stream_on_any_worker(pair: Workers) -> None:
    here, there = pair.ports
    person, other = [await Person.initialized(name, here) for name in ("owner", "stranger")]
    async with AsyncExitStack() as stack:
        own = await stack.enter_async_context(person.listen(here))
        call = await stack.enter_async_context(person.call(here, "count", {"tag": "owned", "times": 2}))
        ids = [(await anext(stream.events())).id for stream in (own, call)]
        for id in ids:
            assert id is not None
            last = "A" if id[-1] != "A" else "B"
            for port in (here, there):
                assert await resumed(other, port, id) == 400
                assert await resumed(person, port, id[:-1] + last) == 400
                assert await resumed(person, port, id) == 200


async def resumed(person: Person, port: int, id: str) -> int:
    """The status of an attempt to go on after an event."""
    async with asyncio.timeout(GONE_WITHIN), person.listen(port, id) as stream:
        status: int = stream.status
        return status


async def test_who_follows_a_call_on_another_worker_is_told_when_its_worker_is_killed(fresh: Workers) -> None:
    """What the call had said by then is heard; the stream ends; and there is no such call any more."""
    here, there = fresh.ports
    person = await Person.initialized("following", here)
    async with person.call(here, "count", {"tag": "followed", "times": 1000}) as stream:
        first = await anext(stream.events())
        assert first.id is not None
    numbers: list[int] = []
    async with asyncio.timeout(GONE_WITHIN), person.listen(there, first.id) as stream:
        assert stream.status == 200
        async for event in stream.events():
            if event.data:
                params = json.loads(event.data)["params"]
                numbers.append(params["data"]["number"] if "data" in params else params["progress"])
                last = event.id
            if len(numbers) == 3 and len(fresh.servers) == 2:
                await asyncio.to_thread(fresh.stop, fresh.servers[0], kill=True)
        assert stream.ended
    assert numbers == list(range(numbers[0], numbers[0] + len(numbers)))
    assert numbers[0] in (1, 2)
    assert await resumed(person, there, last) in (400, 404)
