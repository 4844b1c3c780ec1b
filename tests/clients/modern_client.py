"""Check a server with the `mcp` 2.3 client: `check(way, target, calls, mode)`.

The way is http, sse or stdio. The target is a URL, or the JSON of the command as in a client's configuration. The first
of the calls whose tool the server lists is made. The mode is one of the client's. A check raises on failure. This is
not a test module: `python -m tests.clients` runs it.
"""

import asyncio
import json
import re
import warnings
from contextlib import suppress
from typing import Any

import mcp_types as types
from mcp import Client, StdioServerParameters
from mcp.client.sse import sse_client
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

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
        if isinstance(message, types.ResourceUpdatedNotification):
            assert message.params.uri == WATCHED, message
            self.updated.set()

    async def elicit(self, context: Any, params: Any) -> types.ElicitResult:
        self.asked.append(params.message)
        content = TRAVELLER.get(params.message)
        if content is None:
            content = {name: "Al" if name == "name" else "blue" for name in params.requested_schema["properties"]}
        return types.ElicitResult(action="accept", content=content)

    async def sample(self, context: Any, params: Any) -> types.CreateMessageResultWithTools:
        """Use the offered tool, then return its result."""
        last = params.messages[-1].content
        last = last[0] if isinstance(last, list) else last
        if last.type == "tool_result":
            content: Any = types.TextContent(type="text", text=last.content[0].text)
            return types.CreateMessageResultWithTools(
                role="assistant", content=content, model="m", stop_reason="endTurn"
            )
        assert [tool.name for tool in params.tools] == ["distance"], params
        use = types.ToolUseContent(type="tool_use", id="u1", name="distance", input={"stops": 1})
        return types.CreateMessageResultWithTools(role="assistant", content=[use], model="m", stop_reason="toolUse")


def server(way: str, target: str) -> Any:
    """Build the argument of the client for a transport."""
    return {"http": str, "sse": sse_client, "stdio": lambda text: StdioServerParameters(**json.loads(text))}[way](
        target
    )


async def check(way: str, target: str, calls: Any, mode: str) -> str:
    """Check a server, and return a summary.

    The client lists the tools and calls one. On the fixtures, it also answers questions and watches a resource. It
    makes all calls of a plan, and nothing else.
    """
    user = User()
    async with Client(
        server(way, target),
        mode=mode,
        elicitation_callback=user.elicit,
        sampling_callback=user.sample,
        sampling_capabilities=CAPABLE,
        message_handler=user.handle_message,
    ) as client:
        if isinstance(calls, list):
            return f"{await read_plan(client, calls)}, {client.protocol_version}"
        names = {listed.name for listed in (await client.list_tools()).tools}
        tool = next((name for name in calls if name in names), None)
        assert tool is not None, f"none of {sorted(calls)} is among {sorted(names)}"
        result = await client.call_tool(tool, calls[tool])
        assert result.content, result
        assert not result.is_error, result
        if "test_input_required_result_multi_round" in names:
            result = await client.call_tool("test_input_required_result_multi_round", {})
            assert result.content[0].text == "Multi-round complete for Al who likes blue", result
            assert len(user.asked) == 2, user.asked
            await watch(client, user)
            await journey(client, user)
        return f"{len(names)} tools, {tool} called, {len(user.asked)} questions answered, {client.protocol_version}"


async def read_plan(client: Client, plan: list[Any]) -> str:
    """Make each call of a plan.

    The client validates each structured result by itself, and raises for an invalid one.
    """
    tools, refusals = (await client.list_tools()).tools, []
    for name, arguments in plan:
        try:
            result = await client.call_tool(name, arguments)
            assert not result.is_error, result.content
            assert result.structured_content is not None, result
        except Exception as problem:
            refusals.append(f"{name} {arguments}: {problem}")
    assert not refusals, f"{len(refusals)} refusals of {len(plan)}, such as {refusals[:3]}"
    return f"{len(tools)} tools, {len(plan)} results read"


async def watch(client: Client, user: User) -> None:
    """Wait for the notification that a resource changed."""
    if client.protocol_version in MODERN_PROTOCOL_VERSIONS:
        async with client.listen(resource_subscriptions=[WATCHED]) as changes:
            await client.call_tool("touch_watched_resource", {})
            async for change in changes:
                assert change.uri == WATCHED, change
                return
        raise AssertionError("the stream ended without a word")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the client deprecates the features of old revisions
        await client.subscribe_resource(WATCHED)
    # The client opens the stream of its session by itself, and does not report when it is open.
    for _ in range(20):
        await client.call_tool("touch_watched_resource", {})
        with suppress(TimeoutError):
            await asyncio.wait_for(user.updated.wait(), 0.5)
            return
    raise AssertionError("nothing was told")


async def journey(client: Client, user: User) -> None:
    """Call the handler that asks, loops, samples and books.

    It books once for each call, in however many rounds the call is answered.
    """
    numbers = []
    for _ in range(2):
        user.asked.clear()
        result = await client.call_tool("plan_journey", {})
        found = JOURNEY.fullmatch(result.content[0].text)
        assert found is not None, result
        assert user.asked == list(TRAVELLER), user.asked
        numbers.append(int(found[1]))
    assert numbers[1] == numbers[0] + 1, numbers
