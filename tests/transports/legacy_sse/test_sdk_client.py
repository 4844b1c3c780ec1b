"""The SSE client of the official SDK, over both doors, against a real server."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import mcp_types as types
import pytest
from mcp import ClientSession
from mcp.client.sse import sse_client

from tests.interaction.live_server import live_server

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    """The port of the fixtures server."""
    with live_server() as port:
        yield port


@pytest.fixture(params=["/mcp/sse", "/view/mcp/sse"], ids=["asgi", "view"])
def url(request: pytest.FixtureRequest, port: int) -> str:
    """Both doors."""
    return f"http://127.0.0.1:{port}{request.param}"


def with_client(url: str, use: Callable[[ClientSession], Awaitable[Any]], **options: Any) -> Any:
    """Run `use` with a connected client."""

    async def run() -> Any:
        async with asyncio.timeout(60), sse_client(url) as streams, ClientSession(*streams, **options) as session:
            hello = await session.initialize()
            assert (hello.protocol_version, hello.server_info.name) == ("2025-11-25", "fixtures")
            return await use(session)

    return asyncio.run(run())


def test_a_tool_is_called(url: str) -> None:
    result = with_client(url, lambda session: session.call_tool("add_numbers", {"a": 2, "b": 3}))
    assert result.structured_content == {"result": 5}


def test_calls_side_by_side_get_their_own_answers(url: str) -> None:
    async def use(session: ClientSession) -> list[Any]:
        return await asyncio.gather(*(session.call_tool("add_numbers", {"a": n, "b": 0}) for n in range(20)))

    assert [result.structured_content["result"] for result in with_client(url, use)] == list(range(20))


def test_a_question_reaches_the_user(url: str) -> None:
    asked = []

    async def elicit(context: Any, params: Any) -> types.ElicitResult:
        asked.append(params.message)
        content = dict.fromkeys(params.requested_schema["properties"], "Al")
        return types.ElicitResult(action="accept", content=content)

    arguments = {"message": "Who are you?"}
    result = with_client(
        url, lambda session: session.call_tool("test_elicitation", arguments), elicitation_callback=elicit
    )
    assert asked == ["Who are you?"]
    assert not result.is_error


def test_progress_and_log_messages_arrive(url: str) -> None:
    logged, progress = list[Any](), list[float]()

    async def log(params: Any) -> None:
        logged.append(params.data)

    async def record_progress(done: float, total: float | None, message: str | None) -> None:
        progress.append(done)

    async def use(session: ClientSession) -> None:
        await session.call_tool("test_tool_with_logging", {})
        await session.call_tool("test_tool_with_progress", {}, progress_callback=record_progress)

    with_client(url, use, logging_callback=log)
    assert len(logged) >= 3
    assert progress == sorted(progress)
    assert progress


def test_the_client_reads_the_session_id_in_the_endpoint(url: str) -> None:
    session_ids: list[str] = []

    async def run() -> None:
        async with asyncio.timeout(60), sse_client(url, on_session_created=session_ids.append):
            pass

    asyncio.run(run())
    assert len(session_ids) == 1
