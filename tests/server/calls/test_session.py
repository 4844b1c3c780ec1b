"""The requests of a session to its client, and its calls."""

import asyncio
import threading
from typing import Any

import pytest

from mcp_django.protocol import jsonrpc
from mcp_django.protocol.revisions import LATEST_HANDSHAKE
from mcp_django.server.calls.message_queue import Outbox
from mcp_django.server.calls.session import ServerSession
from tests.support.clock import Clock

TIMEOUT_SECONDS = 60.0


def make(**given: Any) -> ServerSession:
    return ServerSession(
        key="k", owner="o", revision=LATEST_HANDSHAKE, client_info={"name": "x"}, client_capabilities={}, **given
    )


async def read_sent(outbox: Outbox) -> list[dict[str, Any]]:
    return [jsonrpc.loads(message) for message in await outbox.read(TIMEOUT_SECONDS) or ()]


async def test_a_question_is_a_request_and_its_response_is_returned() -> None:
    session, outbox = make(), Outbox()
    asking = asyncio.ensure_future(session.send_request(outbox, "q", "roots/list", None, timeout=TIMEOUT_SECONDS))
    (question,) = await read_sent(outbox)
    assert question["method"] == "roots/list"
    response = jsonrpc.Response(question["id"], {"roots": []}, None)
    assert session.receive_response(response)
    assert await asking is response


async def test_each_response_goes_to_its_own_request() -> None:
    session, outbox = make(), Outbox()
    asking = [
        asyncio.ensure_future(session.send_request(outbox, id, "ping", None, timeout=TIMEOUT_SECONDS))
        for id in ("a", "b", "c")
    ]
    await asyncio.sleep(0)
    questions = await read_sent(outbox)
    for question in reversed(questions):
        session.receive_response(jsonrpc.Response(question["id"], {"to": question["id"]}, None))
    answers = await asyncio.gather(*asking)
    assert [answer.result["to"] for answer in answers] == [question["id"] for question in questions]


async def test_only_the_first_response_counts_and_an_unexpected_one_is_rejected() -> None:
    session, outbox = make(), Outbox()
    assert not session.receive_response(jsonrpc.Response("s1", {}, None))
    asking = asyncio.ensure_future(session.send_request(outbox, "q", "ping", None, timeout=TIMEOUT_SECONDS))
    (question,) = await read_sent(outbox)
    assert session.receive_response(jsonrpc.Response(question["id"], {"first": 1}, None))
    session.receive_response(jsonrpc.Response(question["id"], {"second": 2}, None))
    assert (await asking).result == {"first": 1}
    assert not session.receive_response(jsonrpc.Response(question["id"], {}, None))


async def test_a_response_may_come_from_the_loop_of_another_thread() -> None:
    """A loop that sleeps would not notice a future that is settled behind its back."""
    session, outbox = make(), Outbox()
    asking = asyncio.ensure_future(session.send_request(outbox, "q", "ping", None, timeout=TIMEOUT_SECONDS))
    (question,) = await read_sent(outbox)
    response = jsonrpc.Response(question["id"], {}, None)

    async def elsewhere() -> bool:
        return session.receive_response(response)

    answering = threading.Thread(target=lambda: asyncio.run(elsewhere()))
    answering.start()
    assert await asking is response
    answering.join()


async def test_a_response_may_come_while_the_question_is_being_sent() -> None:
    session = make()

    class Quick(Outbox):
        async def put(self, message: bytes) -> None:
            session.receive_response(jsonrpc.Response(jsonrpc.loads(message)["id"], {"quick": True}, None))

    assert (await session.send_request(Quick(), "q", "ping", None, timeout=TIMEOUT_SECONDS)).result == {"quick": True}


async def test_a_question_over_its_timeout_is_cancelled(clock: Clock) -> None:
    session, outbox = make(), Outbox()
    asking = asyncio.ensure_future(session.send_request(outbox, "q", "ping", None, timeout=3))
    await clock.advance(2.999)
    assert not asking.done()
    await clock.advance(0.001)
    with pytest.raises(TimeoutError):
        await asking
    question, cancelled = await read_sent(outbox)
    assert cancelled["method"] == "notifications/cancelled"
    assert cancelled["params"] == {"requestId": question["id"]}
    assert not session.receive_response(jsonrpc.Response(question["id"], {}, None))


async def test_a_question_of_a_cancelled_call_is_cancelled() -> None:
    session, outbox = make(), Outbox()
    asking = asyncio.ensure_future(session.send_request(outbox, "q", "ping", None, timeout=TIMEOUT_SECONDS))
    (question,) = await read_sent(outbox)
    asking.cancel()
    await asyncio.wait([asking])
    (cancelled,) = await read_sent(outbox)
    assert cancelled["params"] == {"requestId": question["id"]}


def test_a_session_with_a_call_or_a_stream_is_busy() -> None:
    session = make()
    assert not session.is_busy
    session.open_streams += 1
    assert session.is_busy


async def test_calls_are_cancelled_with_the_session() -> None:
    session, given_up = make(), []

    class FakeCallTask:
        def __init__(self, id: int) -> None:
            self.id = id

        def get_loop(self) -> asyncio.AbstractEventLoop:
            return asyncio.get_running_loop()

        def cancel(self) -> None:
            given_up.append(self.id)
            del session.in_flight[self.id]

    session.in_flight.update({id: FakeCallTask(id) for id in (1, 2)})
    assert session.is_busy
    assert not session.cancel(3)
    session.cancel_all()
    assert given_up == [1, 2]


def test_the_repr_of_a_session_has_no_key() -> None:
    assert repr(make()) == f"<Session of x, {LATEST_HANDSHAKE.version}>"
    assert "k" not in repr(make()).split()
