"""Check servers with the `mcp` 1.30 client, once for each line of standard input.

A line of the input is a JSON list of WAY, TARGET and CALLS. WAY is http, sse, websocket or stdio. TARGET is a URL, or
the command as in a client's configuration. CALLS is a JSON object of tools and their arguments, of which the first tool
that the server lists is called, or a JSON list of calls, which are all made. A line of the output is a JSON object with
the summary of the check (`said`), or with the traceback of its failure (`failed`).

The script runs in an environment of its own, which `python -m tests.clients` makes, because this client and `mcp` 2.3
are the same package. So it imports nothing of this project.
"""

import asyncio
import json
import re
import sys
import traceback
import warnings
from contextlib import AbstractAsyncContextManager, suppress
from typing import Any

from mcp import ClientSession, StdioServerParameters, types
from mcp.client.sse import sse_client
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamable_http_client
from mcp.client.websocket import websocket_client

TRAVELLER: dict[str, Any] = {
    "Who travels?": {"name": "Ada", "cabin": "first"},
    "Another stop after 0?": {"value": True},
    "Which stop?": {"value": "Bergen"},
    "Another stop after 1?": {"value": False},
    "Confirm?": {"value": True},
}
"""The questions of `plan_journey`, each with its answer."""
JOURNEY = re.compile(r"Ada \(first\) via Bergen: 100 km, confirmed, booking (\d+)")
WATCHED = "test://watched-resource"
CAPABLE = types.SamplingCapability(tools=types.SamplingToolsCapability())


class User:
    """A user that answers the requests of the fixtures, and records the questions."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.updated = asyncio.Event()

    async def handle_message(self, message: Any) -> None:
        notification = getattr(message, "root", None)
        if isinstance(notification, types.ResourceUpdatedNotification):
            assert str(notification.params.uri) == WATCHED, notification
            self.updated.set()

    async def elicit(self, context: Any, params: Any) -> types.ElicitResult:
        self.asked.append(params.message)
        content = TRAVELLER.get(params.message)
        if content is None:
            content = {name: "Al" if name == "name" else "blue" for name in params.requestedSchema["properties"]}
        return types.ElicitResult(action="accept", content=content)

    async def sample(self, context: Any, params: Any) -> types.CreateMessageResultWithTools:
        """Use the offered tool, then return its result."""
        last = params.messages[-1].content
        last = last[0] if isinstance(last, list) else last
        if last.type == "tool_result":
            content: Any = types.TextContent(type="text", text=last.content[0].text)
            return types.CreateMessageResultWithTools(
                role="assistant", content=content, model="m", stopReason="endTurn"
            )
        assert [tool.name for tool in params.tools] == ["distance"], params
        use = types.ToolUseContent(type="tool_use", id="u1", name="distance", input={"stops": 1})
        return types.CreateMessageResultWithTools(role="assistant", content=[use], model="m", stopReason="toolUse")


def transport(way: str, target: str) -> AbstractAsyncContextManager[tuple[Any, ...]]:
    """Open a transport; the first two values are the streams."""
    if way == "stdio":
        return stdio_client(StdioServerParameters(**json.loads(target)))
    warnings.simplefilter("ignore", DeprecationWarning)  # 1.30 warns that 2.0 has no WebSocket
    return {"http": streamable_http_client, "sse": sse_client, "websocket": websocket_client}[way](target)


async def check(way: str, target: str, calls_json: str) -> str:
    """Check a server, and return a summary.

    The client lists the tools and calls one. On the fixtures, it uses all other features, too. It makes all calls of a
    plan, and nothing else.
    """
    calls: Any = json.loads(calls_json)
    user, progressed = User(), []

    async def progress(value: float, total: float | None, message: str | None) -> None:
        progressed.append(value)

    async with (
        transport(way, target) as (read, write, *_),
        ClientSession(
            read,
            write,
            elicitation_callback=user.elicit,
            sampling_callback=user.sample,
            sampling_capabilities=CAPABLE,
            message_handler=user.handle_message,
        ) as session,
    ):
        hello = await session.initialize()
        await session.send_ping()
        if isinstance(calls, list):
            return f"{await read_plan(session, calls)}, {hello.protocolVersion}"
        names = {listed.name for listed in (await session.list_tools()).tools}
        tool = next((name for name in calls if name in names), None)
        assert tool is not None, f"none of {sorted(calls)} is among {sorted(names)}"
        result = await session.call_tool(tool, calls[tool])
        assert result.content, result
        assert not result.isError, result
        if "test_input_required_result_multi_round" in names:
            await fixtures(session, progress)
            assert progressed == [0, 50, 100], progressed
            assert len(user.asked) == 2, user.asked
            await watch(session, user)
            await journey(session, user)
        return f"{len(names)} tools, {tool} called, {len(user.asked)} questions answered, {hello.protocolVersion}"


async def read_plan(session: ClientSession, plan: list[Any]) -> str:
    """Make each call of a plan.

    The client validates each structured result by itself, and raises for an invalid one.
    """
    tools, refusals = (await session.list_tools()).tools, []
    for name, arguments in plan:
        try:
            result = await session.call_tool(name, arguments)
            assert not result.isError, result.content
            assert result.structuredContent is not None, result
        except Exception as problem:
            refusals.append(f"{name} {arguments}: {problem}")
    assert not refusals, f"{len(refusals)} refusals of {len(plan)}, such as {refusals[:3]}"
    return f"{len(tools)} tools, {len(plan)} results read"


async def fixtures(session: ClientSession, progress: Any) -> None:
    """Use questions, progress, resources, prompts and completion of the fixtures."""
    result = await session.call_tool("test_input_required_result_multi_round", {})
    assert result.content[0].text == "Multi-round complete for Al who likes blue", result
    await session.call_tool("test_tool_with_progress", {}, progress_callback=progress)
    assert len((await session.list_resources()).resources) >= 2
    read = await session.read_resource("test://template/123/data")
    assert json.loads(read.contents[0].text)["id"] == "123", read
    got = await session.get_prompt("test_prompt_with_arguments", {"arg1": "hello", "arg2": "world"})
    assert "arg1='hello'" in got.messages[0].content.text, got
    reference = types.PromptReference(type="ref/prompt", name="test_prompt_with_arguments")
    offered = await session.complete(reference, {"name": "arg1", "value": "test"})
    assert offered.completion.values == ["test", "testing"], offered


async def watch(session: ClientSession, user: User) -> None:
    """Wait for the notification that a resource changed."""
    await session.subscribe_resource(WATCHED)
    # Over HTTP the client opens the stream by itself, and does not report when it is open.
    for _ in range(20):
        await session.call_tool("touch_watched_resource", {})
        with suppress(TimeoutError):
            await asyncio.wait_for(user.updated.wait(), 0.5)
            return
    raise AssertionError("nothing was told")


async def journey(session: ClientSession, user: User) -> None:
    """Call the handler that asks, loops, samples and books; a call books once."""
    numbers = []
    for _ in range(2):
        user.asked.clear()
        result = await session.call_tool("plan_journey", {})
        found = JOURNEY.fullmatch(result.content[0].text)
        assert found is not None, result
        assert user.asked == list(TRAVELLER), user.asked
        numbers.append(int(found[1]))
    assert numbers[1] == numbers[0] + 1, numbers


if __name__ == "__main__":
    for line in sys.stdin:
        try:
            outcome = {"said": asyncio.run(check(*json.loads(line)))}
        except Exception as problem:
            outcome = {"failed": "".join(traceback.format_exception(problem))}
        sys.stdout.write(json.dumps(outcome) + "\n")
        sys.stdout.flush()
