"""A right that is withdrawn on one worker is gone on the other: for the next request, and for everything open there."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager

import pytest

from tests.servers.sockets import Socket
from tests.support.waiting import WAIT_SECONDS
from tests.workers.client import Message, Refused, Stream, UserClient, request
from tests.workers.harness import RESOURCE, Workers

LIFETIME = 30.0
"""Seconds until the token expires that does."""
Over = Awaitable[object]
LOST = ["token revoked", "token deleted", "user deactivated", "user deleted"]
LET_IN = [
    "access token revoked",
    "consent withdrawn",
    "client blocked",
    "client deleted",
    "user of a client deactivated",
]
NARROWED, GRANT, EXPIRES = "token narrowed", "scope granted to others", "token expires"
POLICIES = {"tool disabled": "tool_disabled", "tool kept for a group": "tool_kept_for_a_group"}
RIGHTS = ["left the group", "group lost the permission", "group deleted"]


async def drained(stream: Stream, messages: AsyncIterator[Message] | None = None) -> None:
    """Wait until the server ends a stream."""
    async for _ in messages or stream.messages():
        pass
    assert stream.ended


async def a_listen(stack: AsyncExitStack, token: str, port: int) -> Over:
    wanted = {"notifications": {"toolsListChanged": True}}
    stream = await stack.enter_async_context(UserClient(token).ask(port, "subscriptions/listen", wanted))
    messages = stream.messages()
    assert (await anext(messages))["method"] == "notifications/subscriptions/acknowledged"
    return drained(stream, messages)


async def a_session_s_stream(stack: AsyncExitStack, token: str, port: int) -> Over:
    user = await UserClient.initialized(token, port)
    stream = await stack.enter_async_context(user.listen(port))
    assert stream.status == 200
    return drained(stream)


async def a_call(stack: AsyncExitStack, token: str, port: int) -> Over:
    return await _call(stack, UserClient(token), port)


async def a_session_s_call(stack: AsyncExitStack, token: str, port: int) -> Over:
    return await _call(stack, await UserClient.initialized(token, port), port)


async def _call(stack: AsyncExitStack, user: UserClient, port: int) -> Over:
    stream = await stack.enter_async_context(user.call(port, "linger", {"tag": user.name}))
    messages = stream.messages()
    assert (await anext(messages))["method"] == "notifications/progress"
    return drained(stream, messages)


async def a_legacy_stream(stack: AsyncExitStack, token: str, port: int) -> Over:
    headers = {"Authorization": f"Bearer {token}", "Accept": "text/event-stream"}
    stream = await stack.enter_async_context(request(port, "GET", headers, path="/mcp/sse"))
    events = stream.events()
    assert (await anext(events)).event == "endpoint"

    async def over() -> None:
        assert [event async for event in events] == []
        assert stream.ended

    return over()


async def a_socket(stack: AsyncExitStack, token: str, port: int) -> Over:
    def opened() -> Socket:
        return Socket(port, headers={"Authorization": f"Bearer {token}"})

    socket = stack.enter_context(await asyncio.to_thread(opened))
    assert socket.status == 101

    async def over() -> None:
        closed = await asyncio.to_thread(socket.closed)
        assert closed is not None
        assert closed[0] in (4401, 4403)

    return over()


OPEN: list[Callable[[AsyncExitStack, str, int], Awaitable[Over]]] = [
    a_listen,
    a_session_s_stream,
    a_call,
    a_session_s_call,
    a_legacy_stream,
    a_socket,
]


async def timed(over: Over, since: float) -> float:
    await over
    return time.monotonic() - since


async def until_refused(token: str, port: int, status: int) -> None:
    """Ask until the answer is no."""
    while True:
        async with UserClient(token).ask(port, "tools/list") as stream:
            if stream.status != 200:
                assert stream.status == status
                return
        await asyncio.sleep(0.02)


async def withdrawn(pair: Workers, how: str, name: str) -> float:
    """Have the second worker take it away; when it had."""
    await UserClient("admin").value(pair.ports[1], "withdraw", {"how": how, "name": name})
    return time.monotonic()


async def test_streams_end_with_their_credential_and_the_next_request_is_refused(pair: Workers) -> None:
    here, there = pair.ports
    admin, expiring = UserClient("admin"), asyncio.Event()  # set once that token has opened all that it can
    tokens: dict[str, str] = await admin.value(there, "people", {"names": [*LOST, NARROWED, GRANT]})
    tokens |= await admin.value(there, "people_with_clients", {"names": LET_IN, "resource": RESOURCE})
    tokens |= await admin.value(there, "people", {"names": [EXPIRES], "seconds": LIFETIME})

    async def lose(how: str) -> dict[str, float]:
        async with AsyncExitStack() as stack:
            token, since = tokens[how], time.monotonic()
            if how != EXPIRES:
                await expiring.wait()
            open_ones = {opens.__name__: await opens(stack, token, here) for opens in OPEN}
            expiring.set()
            await UserClient(token).result(there, "tools/list")
            if how != EXPIRES:
                since = await withdrawn(pair, how, how)
            if how in (*LOST, *LET_IN):
                with pytest.raises(Refused, match=r"^401"):
                    await UserClient(token).result(there, "tools/list")
            if how not in (NARROWED, GRANT):
                open_ones["the next request"] = until_refused(token, here, 401)
            took = await asyncio.gather(*(timed(over, since) for over in open_ones.values()))
            return dict(zip(open_ones, took, strict=True))

    async with asyncio.timeout(4 * WAIT_SECONDS):
        found = dict(zip(tokens, await asyncio.gather(*map(lose, tokens)), strict=True))
    print_delays(found)
    for how in (NARROWED, GRANT):
        await UserClient(tokens[how]).result(here, "tools/list")


async def finds(token: str, port: int, tool: str = "secret") -> bool:
    """Whether the tool is there. If not, the answer is that of an unknown tool."""
    async with UserClient(token).call(port, tool) as stream:
        (answer,) = [message async for message in stream.messages()]
    return "result" in answer or answer["error"]["message"] != f"Unknown tool: {tool}"


async def wait_until_not_found(token: str, port: int, tool: str = "secret") -> None:
    while await finds(token, port, tool):
        await asyncio.sleep(0.02)


@asynccontextmanager
async def listening(token: str, port: int, numbers: range) -> AsyncIterator[AsyncIterator[Message]]:
    """A stream of notifications about secrets, each followed by one about a public resource."""
    uris = [uri for number in numbers for uri in (f"secret://{number}", f"item://beat/{number}")]
    wanted = {"notifications": {"resourceSubscriptions": uris}}
    async with UserClient(token).ask(port, "subscriptions/listen", wanted) as stream:
        messages = stream.messages()
        assert (await anext(messages))["params"]["notifications"] == {"resourceSubscriptions": uris}
        yield messages


async def test_a_user_who_lost_a_permission_gets_neither_entries_nor_notifications(pair: Workers) -> None:
    here, there = pair.ports
    tokens = await UserClient("admin").value(there, "people", {"names": [*RIGHTS, *POLICIES]})
    most = 40

    async def receives(messages: AsyncIterator[Message], number: int) -> bool:
        """Return True if the notification of the secret comes before that of the public resource."""
        await UserClient("admin").value(here, "change_secret", {"number": number})
        received = False
        while (uri := (await anext(messages))["params"]["uri"]) != f"item://beat/{number}":
            received = received or uri == f"secret://{number}"
        return received

    async def lose(how: str) -> dict[str, float]:
        token = tokens[how]
        # Each case has its own secrets: changes of other cases could come before and after the subscription.
        first = RIGHTS.index(how) * most
        numbers = range(first, first + most)

        async with listening(token, here, numbers) as messages:
            assert await receives(messages, first)
            for port in (here, there):
                assert await finds(token, port)
            since = await withdrawn(pair, how, how)
            assert not await finds(token, there)

            async def wait_until_not_notified() -> None:
                for number in numbers[1:]:
                    if not await receives(messages, number):
                        return
                    await asyncio.sleep(1)
                raise AssertionError("the stream still gets what its user may not see")

            took = await asyncio.gather(
                timed(wait_until_not_found(token, here), since), timed(wait_until_not_notified(), since)
            )
            return dict(zip(("the next request", "a_listen"), took, strict=True))

    async def forbid(how: str) -> dict[str, float]:
        token, tool = tokens[how], POLICIES[how]
        for port in (here, there):
            assert await finds(token, port, tool)
        since = await withdrawn(pair, how, how)
        assert not await finds(token, there, tool)
        return {"the next request": await timed(wait_until_not_found(token, here, tool), since)}

    async with asyncio.timeout(4 * WAIT_SECONDS):
        found = await asyncio.gather(*map(lose, RIGHTS), *map(forbid, POLICIES))
    print_delays(dict(zip([*RIGHTS, *POLICIES], found, strict=True)))


def print_delays(table: dict[str, dict[str, float]]) -> None:
    """Print how soon the other worker knew; `pytest -s` shows it."""
    for how, took in table.items():
        print(f"\n{how}: " + ", ".join(f"{what} {seconds:.2f} s" for what, seconds in took.items()), flush=True)
