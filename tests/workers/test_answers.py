"""A question that one worker asks is answered at the other, in both eras.

Medians are printed: read them with pytest -rP.
"""

import asyncio
import itertools
import statistics
import time

import pytest

from tests.servers.client import HANDSHAKE, META, STATELESS
from tests.support.waiting import WAIT_SECONDS
from tests.workers.client import Message, UserClient
from tests.workers.harness import Workers, workers
from tests.workers.unreliable_layer import DeliveryFaults

QUESTIONS = 200
CLIENTS = 10


async def answer_across(asking: int, answering: int, user: UserClient, number: int) -> float:
    """A question asked by one worker, and answered at another. Returns the seconds from the answer to the result."""
    async with asyncio.timeout(WAIT_SECONDS):
        if user.revision == STATELESS:
            return await _in_rounds(asking, answering, user, number)
        return await _in_a_session(asking, answering, user, number)


async def _in_a_session(asking: int, answering: int, user: UserClient, number: int) -> float:
    async with user.call(asking, "number") as stream:
        began = 0.0
        async for message in stream.messages():
            if "method" in message:
                assert message["method"] == "elicitation/create"
                began = time.monotonic()
                answer = {"jsonrpc": "2.0", "id": message["id"], "result": form_answer(message["params"], number)}
                assert await user.send(answering, answer) == 202
            else:
                assert value(message["result"]) == number
                return time.monotonic() - began
    raise AssertionError("the call ended without an answer")


async def _in_rounds(asking: int, answering: int, user: UserClient, number: int) -> float:
    given = {"name": "number", "arguments": {}}
    asked = await user.result(asking, "tools/call", given, name="number")
    assert asked["resultType"] == "input_required"
    began = time.monotonic()
    answers = {key: form_answer(question["params"], number) for key, question in asked["inputRequests"].items()}
    retry = {**given, "inputResponses": answers, "requestState": asked["requestState"]}
    result = await user.result(answering, "tools/call", retry, name="number")
    assert value(result) == number
    assert META + "serverInfo" in result["_meta"]
    return time.monotonic() - began


def form_answer(question: Message, number: int) -> Message:
    """The answer of a form with one field."""
    (field,) = question["requestedSchema"]["properties"]
    return {"action": "accept", "content": {field: number}}


def value(result: Message) -> int:
    assert not result.get("isError"), result
    number: int = result["structuredContent"]["result"]
    return number


async def delays(pair: Workers, revision: str, questions: int, *, across: bool) -> list[float]:
    """The delays of so many questions, sorted. Half of them are asked by each of the two workers."""

    async def one(client: int) -> None:
        user = UserClient(f"asked-{client}", revision)
        if revision != STATELESS:
            user = await UserClient.initialized(user.name, pair.ports[client % 2], revision)
        for number in itertools.islice(numbers, questions // CLIENTS):
            asking, other = pair.ports[number % 2], pair.ports[1 - number % 2]
            found.append(await answer_across(asking, other if across else asking, user, number))

    found: list[float] = []
    numbers = itertools.count()
    await asyncio.gather(*map(one, range(CLIENTS)))
    return sorted(found)


@pytest.mark.parametrize("revision", [HANDSHAKE, STATELESS])
async def test_a_response_posted_to_the_other_worker_arrives(pair: Workers, revision: str) -> None:
    alone = await delays(pair, revision, QUESTIONS // 4, across=False)
    across = await delays(pair, revision, QUESTIONS, across=True)
    assert len(across) == QUESTIONS
    print(
        f"{revision}: {len(across)} of {QUESTIONS} answers at the other worker, result after "
        f"{statistics.median(across) * 1000:.1f} ms (median), {across[-1] * 1000:.0f} ms at most; at the same worker "
        f"{statistics.median(alone) * 1000:.1f} ms"
    )


async def test_a_response_arrives_without_wakes(pair: Workers) -> None:
    pair.set_faults(DeliveryFaults(lost=1))
    across = await delays(pair, HANDSHAKE, 2 * CLIENTS, across=True)
    assert len(across) == 2 * CLIENTS


async def test_a_response_arrives_at_a_worker_with_another_clock(shared: Workers) -> None:
    with workers(shared.database, shared.redis, many=1) as own:
        for difference in (-300, 300):
            own.start(environ={"SITE_CLOCK_DIFFERENCE": str(difference)})
        exact, slow, fast = own.ports
        user = await UserClient.initialized("early-and-late", exact)
        for number, (asking, answering) in enumerate(itertools.permutations((exact, slow, fast), 2)):
            await answer_across(asking, answering, user, number)
        for server in own.servers[1:]:
            assert "Clock differs from that of the database" in server.log()
