"""A change reaches all clients that asked for it, on any worker and from any process."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest

from tests.servers.client import META
from tests.support.waiting import WAIT_SECONDS
from tests.workers.client import Message, UserClient
from tests.workers.harness import Workers

Publish = Callable[[Workers, str], Awaitable[None]]


async def by_the_other_worker(pair: Workers, source: str) -> None:
    """In a tool's own loop."""
    await UserClient("saying").value(pair.ports[1], "change", {"source": source, "number": 1})


async def by_a_thread(pair: Workers, source: str) -> None:
    """In a thread of the other worker that knows nothing of loops."""
    await UserClient("saying").value(pair.ports[1], "change_in_thread", {"source": source, "number": 1})


async def by_a_shell(pair: Workers, source: str) -> None:
    """In a process without a server."""
    code = f"""
        from mcp_django.notifications import notify_resource_updated
        notify_resource_updated("item://{source}/1")
    """
    await asyncio.to_thread(pair.run, code)


async def by_a_transaction_of_a_shell(pair: Workers, source: str) -> None:
    """A change that is rolled back sends no notification, and a committed one sends it at the commit."""
    code = f"""
        from django.db import transaction
        from mcp_django.notifications import notify_resource_updated
        try:
            with transaction.atomic():
                notify_resource_updated("item://{source}/2")
                raise LookupError
        except LookupError:
            pass
        with transaction.atomic():
            notify_resource_updated("item://{source}/1")
    """
    await asyncio.to_thread(pair.run, code)


PUBLISHERS = [by_the_other_worker, by_a_thread, by_a_shell, by_a_transaction_of_a_shell]


@asynccontextmanager
async def listening(user: UserClient, port: int, uris: list[str]) -> AsyncIterator[AsyncIterator[Message]]:
    """Open and acknowledge `subscriptions/listen` of the stateless era. Yield its messages."""
    async with user.ask(port, "subscriptions/listen", {"notifications": {"resourceSubscriptions": uris}}) as stream:
        assert stream.status == 200, stream.status
        messages = stream.messages()
        first = await anext(messages)
        assert first["method"] == "notifications/subscriptions/acknowledged"
        assert first["params"]["notifications"] == {"resourceSubscriptions": uris}
        assert first["params"]["_meta"][META + "subscriptionId"] == user.last_id
        yield messages


async def next_update(messages: AsyncIterator[Message]) -> Message:
    """Read up to the next update of a resource. Changes of other tests may come first."""
    async for message in messages:
        if message["method"] == "notifications/resources/updated":
            return message
    raise EOFError("the stream ended")


@pytest.mark.parametrize("publish", PUBLISHERS)
async def test_a_change_reaches_a_listener_and_a_session_that_subscribed_on_the_other_worker(
    pair: Workers, publish: Publish
) -> None:
    here, there = pair.ports
    source = publish.__name__
    uris = [f"item://{source}/{number}" for number in (1, 2)]
    listener, user = UserClient("listening"), await UserClient.initialized("subscribed", there)
    for uri in uris:
        await user.result(there, "resources/subscribe", {"uri": uri})
    async with (
        asyncio.timeout(2 * WAIT_SECONDS),
        listening(listener, here, uris) as messages,
        user.listen(here) as stream,
    ):
        assert stream.status == 200
        await publish(pair, source)
        of_listener, of_session = await next_update(messages), await next_update(stream.messages())
    for received in (of_listener, of_session):
        assert received["params"]["uri"] == f"item://{source}/1"
    assert of_listener["params"]["_meta"][META + "subscriptionId"] == listener.last_id


async def test_an_unsubscription_on_one_worker_applies_on_the_other(pair: Workers) -> None:
    here, there = pair.ports
    user = await UserClient.initialized("fickle", here)
    for number in (1, 2):
        await user.result(here, "resources/subscribe", {"uri": f"item://fickle/{number}"})
    async with asyncio.timeout(2 * WAIT_SECONDS), user.listen(there) as stream:
        assert stream.status == 200
        await user.result(here, "resources/unsubscribe", {"uri": "item://fickle/1"})
        for number in (1, 2):
            await user.value(here, "change", {"source": "fickle", "number": number})
        received = await next_update(stream.messages())
    assert received["params"]["uri"] == "item://fickle/2"


async def test_a_subscription_applies_to_a_stream_on_the_other_worker(pair: Workers) -> None:
    here, there = pair.ports
    user = await UserClient.initialized("curious", here)
    async with asyncio.timeout(2 * WAIT_SECONDS), user.listen(there) as stream:
        assert stream.status == 200
        await user.value(here, "change", {"source": "curious", "number": 1})
        for number in (1, 2):
            await user.result(here, "resources/subscribe", {"uri": f"item://curious/{number}"})
        await user.value(here, "change", {"source": "curious", "number": 2})
        received = await next_update(stream.messages())
    assert received["params"]["uri"] == "item://curious/2"


async def test_all_listeners_receive_changes_in_one_order(pair: Workers) -> None:
    """Two speakers at once, and listeners on both workers."""
    numbers = range(1, 11)
    uris = [f"item://order-{publisher}/{number}" for publisher in (0, 1) for number in numbers]

    async def receive(name: str, port: int, ready: asyncio.Barrier) -> list[str]:
        async with listening(UserClient(name), port, uris) as messages:
            await ready.wait()
            return [(await anext(messages))["params"]["uri"] for _ in uris]

    async def publish_numbers(publisher: int) -> None:
        await ready.wait()
        for number in numbers:
            await UserClient(f"publisher-{publisher}").value(
                pair.ports[publisher], "change", {"source": f"order-{publisher}", "number": number}
            )

    ready = asyncio.Barrier(6)
    async with asyncio.timeout(2 * WAIT_SECONDS):
        *received, _, _ = await asyncio.gather(
            *(receive(f"listener-{n}", pair.ports[n % 2], ready) for n in range(4)),
            publish_numbers(0),
            publish_numbers(1),
        )
    assert sorted(received[0]) == sorted(uris)
    assert all(order == received[0] for order in received)
