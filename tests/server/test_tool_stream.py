"""Results that are streamed in parts."""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Generator, Iterator
from typing import Any

import pytest

from mcp_django import Context, ToolError, ToolResult
from mcp_django.types import TextContent, ToolStream
from tests.official_schema import validator
from tests.server.client import HANDSHAKE, STATELESS, PipelineClient, accept, make_server
from tests.support.clock import Clock
from tests.support.waiting import eventually, wait_until

TOKEN = {"_meta": {"progressToken": "t"}}


def serving(fn: Any, version: str = STATELESS, **options: Any) -> PipelineClient:
    server = make_server()
    server.tool(fn, name="it", **options)
    return PipelineClient(server, version=version)


async def stream_tool(peer: PipelineClient, **arguments: Any) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """The result, and the params of the progress before it."""
    peer.received.clear()
    result = await peer.request("tools/call", {"name": "it", "arguments": arguments, **TOKEN})
    assert {message["method"] for message in peer.received} <= {"notifications/progress"}
    return result, [message["params"] for message in peer.received]


async def words() -> AsyncIterator[str]:
    for word in ("a", "b", "c"):
        yield word


async def numbers() -> AsyncIterator[int]:
    yield 1
    yield 2


def plain() -> Iterator[str]:
    yield "a"
    yield "b"


@pytest.mark.parametrize("version", [STATELESS, HANDSHAKE])
async def test_each_yielded_part_is_progress_and_all_are_the_result(version: str) -> None:
    result, progress = await stream_tool(serving(words, version))
    assert result["content"] == [{"type": "text", "text": "abc"}]
    assert result["structuredContent"] == {"result": "abc"}
    assert progress == [{"progressToken": "t", "progress": n + 1, "message": "abc"[n]} for n in range(3)]


async def test_without_a_progress_token_only_the_result_is_sent() -> None:
    peer = serving(words)
    assert await peer.text("it") == "abc"
    assert peer.received == []


async def test_a_revision_without_progress_messages_gets_numbers() -> None:
    _, progress = await stream_tool(serving(words, "2024-11-05"))
    assert progress == [{"progressToken": "t", "progress": n + 1} for n in range(3)]


async def test_parts_that_are_not_text_become_a_list() -> None:
    peer = serving(numbers)
    (entry,) = (await peer.request("tools/list"))["tools"]
    assert entry["outputSchema"]["properties"]["result"] == {"type": "array", "items": {"type": "integer"}}
    result, progress = await stream_tool(peer)
    assert result["structuredContent"] == {"result": [1, 2]}
    assert [params["message"] for params in progress] == ["1", "2"]


async def test_a_plain_generator_runs_on_a_thread() -> None:
    threads: set[int] = set()

    def it(count: int) -> Iterator[dict[str, int]]:
        for number in range(count):
            threads.add(threading.get_ident())
            yield {"n": number}

    result, progress = await stream_tool(serving(it), count=2)
    assert result["structuredContent"] == {"result": [{"n": 0}, {"n": 1}]}
    assert [params["message"] for params in progress] == ['{"n":0}', '{"n":1}']
    assert len(threads) == 1


async def test_the_return_value_of_a_plain_generator_is_the_result() -> None:
    def it() -> Generator[str, None, int]:
        yield "half of it"
        return 42

    result, progress = await stream_tool(serving(it))
    assert result["structuredContent"] == {"result": 42}
    assert [params["message"] for params in progress] == ["half of it"]


@pytest.mark.parametrize("version", [STATELESS, HANDSHAKE])
async def test_a_tool_may_return_a_stream(version: str) -> None:
    cases: list[tuple[Callable[[], Any], str, int]] = [
        (lambda: ToolStream(words(), total=3), "abc", 3),
        (lambda: ToolStream(plain()), "ab", 2),
        (lambda: ToolStream(["x", "y"]), "xy", 2),
        (lambda: ToolStream(words(), accumulate="list"), '["a","b","c"]', 3),
        (lambda: ToolStream(words(), accumulate="last"), "c", 3),
        (lambda: ToolStream(numbers(), accumulate="text"), "12", 2),
        (lambda: ToolStream(numbers(), accumulate=sum), "3", 2),
        (lambda: ToolStream([]), "", 0),
        (words, "abc", 3),
        (plain, "ab", 2),
    ]
    make: Callable[[], Any] = words

    async def it():  # type: ignore[no-untyped-def]
        return make()

    def injected(ctx: Context):  # type: ignore[no-untyped-def]
        return make()

    violations = []
    for fn in (it, injected):
        peer = serving(fn, version)
        for number, (source, text, pieces) in enumerate(cases):
            make = source
            result, progress = await stream_tool(peer)
            validator(version, "CallToolResult")(result)
            found = result["content"][0]["text"], [params["progress"] for params in progress]
            if found != (text, list(range(1, pieces + 1))):
                violations.append((fn, number, found))
    assert violations == []


async def test_progress_has_the_total() -> None:
    async def it() -> ToolStream[str]:
        return ToolStream(words(), total=3)

    _, progress = await stream_tool(serving(it))
    assert [params["total"] for params in progress] == [3, 3, 3]


async def test_the_result_has_the_form_of_the_output_schema() -> None:
    async def it() -> ToolStream[dict[str, int]]:
        async def steps() -> AsyncIterator[dict[str, int]]:
            yield {"done": 1}
            yield {"done": 2}

        return ToolStream(steps())

    assert (await serving(it, output_schema=dict[str, int]).call("it"))["structuredContent"] == {"done": 2}
    assert (await serving(it, output_schema=list[dict[str, int]]).call("it"))["structuredContent"] == {
        "result": [{"done": 1}, {"done": 2}]
    }


async def test_content_blocks_and_tool_results_may_be_parts() -> None:
    async def blocks() -> AsyncIterator[TextContent]:
        yield TextContent("one")
        yield TextContent("two")

    async def full() -> AsyncIterator[Any]:
        yield "working"
        yield ToolResult("done", is_error=True)
        raise AssertionError("another item was requested")

    result, progress = await stream_tool(serving(blocks))
    assert [block["text"] for block in result["content"]] == ["one", "two"]
    assert [params["message"] for params in progress] == ["one", "two"]
    result, progress = await stream_tool(serving(full))
    assert (result["isError"], result["content"][0]["text"]) == (True, "done")
    assert [params["message"] for params in progress] == ["working"]


async def test_a_long_part_is_cut_in_progress_only() -> None:
    async def it() -> AsyncIterator[str]:
        yield "x" * 10_000

    result, progress = await stream_tool(serving(it))
    assert len(progress[0]["message"]) == 4096
    assert len(result["content"][0]["text"]) == 10_000


class Endless:
    """Generators without an end, and events for their begin and their end."""

    def __init__(self) -> None:
        self.begun, self.closed = threading.Event(), threading.Event()

    async def agen(self) -> AsyncIterator[int]:
        try:
            while True:
                self.begun.set()
                yield 1
                await asyncio.sleep(0)
        finally:
            await asyncio.sleep(0)
            self.closed.set()

    def gen(self) -> Iterator[int]:
        try:
            while True:
                self.begun.set()
                yield 1
        finally:
            self.closed.set()


@pytest.mark.parametrize("kind", ["agen", "gen"])
async def test_an_endless_stream_is_stopped_and_closed(kind: str) -> None:
    endless = Endless()

    async def it() -> ToolStream[int]:
        return ToolStream(getattr(endless, kind)(), limit=50)

    assert "limit of 50 pieces" in await serving(it).error("it")
    assert endless.closed.is_set()


@pytest.mark.parametrize("kind", ["agen", "gen"])
def test_a_stream_that_takes_too_long_is_closed(kind: str, clock: Clock) -> None:
    async def main() -> str:
        clock.control(asyncio.get_running_loop())

        async def it() -> ToolStream[int]:
            return ToolStream(getattr(endless, kind)(), accumulate="last")

        call = asyncio.create_task(serving(it, timeout=2).error("it"))
        await eventually(endless.begun.is_set)
        await clock.advance(2)
        return await call

    endless = Endless()
    assert "longer than" in asyncio.run(main())
    wait_until(endless.closed.is_set)


def test_a_thread_closes_its_generator_after_a_cancellation() -> None:
    reached, go, closed = threading.Event(), threading.Event(), threading.Event()

    def it() -> Iterator[int]:
        try:
            yield 1
            reached.set()
            wait_until(go.is_set)
            yield 2
        finally:
            closed.set()

    async def main() -> None:
        peer = serving(it)
        call = asyncio.create_task(peer.call("it"))
        await eventually(reached.is_set)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        assert not closed.is_set()
        go.set()
        await eventually(closed.is_set)

    asyncio.run(main())


def test_a_cancelled_call_closes_an_async_generator() -> None:
    async def main() -> None:
        reached, closed = asyncio.Event(), asyncio.Event()

        async def it() -> AsyncIterator[int]:
            try:
                yield 1
                reached.set()
                await asyncio.Event().wait()
            finally:
                await asyncio.sleep(0)
                closed.set()

        call = asyncio.create_task(serving(it).call("it"))
        await reached.wait()
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        assert closed.is_set()

    asyncio.run(main())


async def test_an_exception_of_a_generator_is_handled_as_of_any_tool() -> None:
    async def it() -> AsyncIterator[str]:
        yield "a"
        raise ToolError("no more")

    def bug() -> Iterator[str]:
        yield "a"
        raise RuntimeError("secret")

    assert await serving(it).error("it") == "no more"
    assert "secret" not in await serving(bug).error("it")


@pytest.mark.parametrize("version", [STATELESS, HANDSHAKE])
async def test_a_generator_may_ask(version: str) -> None:
    async def it(ctx: Context) -> AsyncIterator[str]:
        yield "before "
        answer = await ctx.elicit("Go on?")
        yield f"after {answer.data}"

    peer = serving(it, version)
    peer.answer = lambda method, params: accept(value=True)
    assert await peer.text("it") == "before after True"


async def test_interceptors_get_the_result_of_a_stream() -> None:
    async def loud(ctx: Context, proceed: Any) -> str:
        return str(await proceed()).upper()

    assert await serving(words, interceptors=[loud]).text("it") == "ABC"


def test_an_invalid_stream_is_refused() -> None:
    with pytest.raises(TypeError):
        ToolStream(5)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="accumulate"):
        ToolStream([], accumulate="first")  # type: ignore[arg-type]
