"""Check a server with our client: `check(way, address, calls, mode)`.

The way is http, sse, websocket or stdio. The address is a URL, or the JSON of the command as in a client's
configuration. The first of the calls whose tool the server lists is made. The mode is `auto` or an era. A check raises
on failure.
"""

import asyncio
import json
import os
from contextlib import suppress
from pathlib import Path
from typing import Any

import mcp_types as types

from mcp_django.client import SSE, Client, Stdio, StreamableHTTP, WebSocket
from tests.clients.modern_client import JOURNEY, TRAVELLER
from tests.support.waiting import WAIT_SECONDS

STATELESS = "2026-07-28"
TIMEOUT_SECONDS = 60.0
WAITS = 0.5
"""Seconds until a change is made again, because no message reports that a stream of changes is open."""


class User:
    """A user that answers requests of servers, and records these and notifications."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.sampled: list[str] = []
        self.changed: asyncio.Queue[str] = asyncio.Queue()

    def elicit(self, params: types.ElicitRequestParams) -> Any:
        self.asked.append(params.message)
        if not isinstance(params, types.ElicitRequestFormParams):
            return None
        if params.message in TRAVELLER:
            return TRAVELLER[params.message]
        fields = params.requested_schema["properties"]
        return {name: _filled(name, field) for name, field in fields.items()}

    async def sample(self, params: types.CreateMessageRequestParams) -> Any:
        """Use the offered tool once; otherwise return the text in capitals."""
        last = params.messages[-1].content
        last = last[0] if isinstance(last, list) else last
        if isinstance(last, types.TextContent) and not params.tools:
            self.sampled.append(last.text)
            content: Any = types.TextContent(type="text", text=last.text.upper())
            return types.CreateMessageResult(role="assistant", content=content, model="m", stop_reason="endTurn")
        if last.type == "tool_result":
            content = types.TextContent(type="text", text=last.content[0].text)
            return types.CreateMessageResultWithTools(
                role="assistant", content=content, model="m", stop_reason="endTurn"
            )
        assert [tool.name for tool in params.tools or ()] == ["distance"], params
        use = types.ToolUseContent(type="tool_use", id="u1", name="distance", input={"stops": 1})
        return types.CreateMessageResultWithTools(role="assistant", content=[use], model="m", stop_reason="toolUse")


def target(way: str, address: str) -> Any:
    """Build the target of the client for a transport."""
    if way != "stdio":
        return {"http": StreamableHTTP, "sse": SSE, "websocket": WebSocket}[way](address)
    command = json.loads(address)
    environment = {name: os.environ[name] for name in ("PYTHONPATH",) if name in os.environ}
    return Stdio(command["command"], command["args"], env={**environment, **command.get("env", {})})


async def check(way: str, address: str, calls: dict[str, Any], mode: str) -> str:
    """Check a server, and return a summary.

    The client lists the tools and calls one. On a known server, it uses all other features, too.
    """
    user = User()
    async with Client(
        target(way, address),
        protocol_version=None if mode == "auto" else mode,
        elicitation=user.elicit,
        sampling=user.sample,
        sampling_tools=True,
        roots=[Path("/work")],
        startup_timeout=WAIT_SECONDS,
    ) as client:
        client.on_resource_updated(user.changed.put_nowait)
        names = {tool.name for tool in await client.list_tools()}
        tool = next((name for name in calls if name in names), None)
        assert tool is not None, f"none of {sorted(calls)} is among {sorted(names)}"
        result = await client.call_tool(tool, calls[tool])
        assert result.content, result
        assert not result.is_error, result
        await client.ping()
        for known, look in (("plan_journey", _fixtures), ("get-sum", _everything), ("count", _sdk)):
            if known in names:
                await look(client, user)
        return f"{len(names)} tools, {tool} called, {len(user.asked)} questions answered, {client.protocol_version}"


async def _fixtures(client: Client, user: User) -> None:
    """Use the fixtures: rounds of questions, a watched resource, and `plan_journey`."""
    assert await _text(client, "test_input_required_result_multi_round") == "Multi-round complete for Al who likes blue"
    await _watch(client, user, "test://watched-resource", "touch_watched_resource")
    numbers = []
    for _ in range(2):
        user.asked.clear()
        told = JOURNEY.fullmatch(await _text(client, "plan_journey"))
        assert told is not None
        assert user.asked == list(TRAVELLER), user.asked
        numbers.append(int(told[1]))
    assert numbers[1] == numbers[0] + 1, numbers


async def _everything(client: Client, user: User) -> None:
    """Use the features of the TypeScript reference server."""
    await _progress(client, "trigger-long-running-operation", {"duration": 0.2, "steps": 4}, 4)
    assert "resource" in (await client.list_resources())[0].uri
    assert any(found.uri_template.startswith("demo://") for found in await client.list_resource_templates())
    assert (await client.read_resource("demo://resource/dynamic/text/1")).contents
    prompt = await client.get_prompt("args-prompt", {"city": "Oslo"})
    assert "Oslo" in prompt.messages[0].content.text
    ref = types.PromptReference(type="ref/prompt", name="completable-prompt")
    assert (await client.complete(ref, "department", "E")).values == ["Engineering"]
    structured = await client.call_tool("get-structured-content", {"location": "Chicago"})
    assert structured.structured_content is not None
    assert "SAY HI" in await _text(client, "trigger-sampling-request", prompt="Say hi")
    await client.call_tool("trigger-elicitation-request")
    assert user.asked, "nothing was asked"
    assert "/work" in await _text(client, "get-roots-list")
    await client.set_logging_level("debug")
    await client.subscribe("demo://resource/dynamic/text/1")
    await client.unsubscribe("demo://resource/dynamic/text/1")


async def _sdk(client: Client, user: User) -> None:
    """Use the features of the server on the official SDK."""
    await _progress(client, "count", {"to": 3}, 3)
    assert (await client.call_tool("fail")).is_error
    assert (await client.read_resource("notes://ada/text")).contents[0].text == "note of ada"
    assert [found.name for found in await client.list_resource_templates()] == ["note"]
    prompt = await client.get_prompt("review", {"code": "x = 1"})
    assert prompt.messages[0].content.text == "Review x = 1"
    ref = types.PromptReference(type="ref/prompt", name="review")
    assert (await client.complete(ref, "code", "b")).values == ["beta"]
    if client.protocol_version == STATELESS:
        return await _watch(client, user, "notes://watched", "change")
    assert await _text(client, "greet") == "GREET AL"
    assert user.asked == ["Who are you?"], user.asked


async def _progress(client: Client, tool: str, arguments: dict[str, Any], last: float) -> None:
    """Call a tool, and wait for all of its progress.

    The last notification may come a moment after the result.
    """
    steps: asyncio.Queue[float] = asyncio.Queue()
    await client.call_tool(tool, arguments, on_progress=lambda done, *_: steps.put_nowait(done))
    async with asyncio.timeout(TIMEOUT_SECONDS):
        while await steps.get() != last:
            pass


async def _watch(client: Client, user: User, uri: str, tool: str) -> None:
    """Wait for the notification that a resource changed."""
    await client.subscribe(uri)
    async with asyncio.timeout(TIMEOUT_SECONDS):
        while user.changed.empty():
            await client.call_tool(tool)
            with suppress(TimeoutError):
                assert await asyncio.wait_for(user.changed.get(), WAITS) == uri
                break
    await client.unsubscribe(uri)


async def _text(client: Client, tool: str, **arguments: Any) -> str:
    result = await client.call_tool(tool, arguments)
    assert not result.is_error, result
    return "\n".join(block.text for block in result.content if isinstance(block, types.TextContent))


def _filled(name: str, field: dict[str, Any]) -> Any:
    """Choose a valid value for a field of a form."""
    if "default" in field:
        return field["default"]
    if choices := field.get("enum") or [choice["const"] for choice in field.get("oneOf", ())]:
        return choices[0]
    samples = {"integer": field.get("minimum", 1), "number": field.get("minimum", 1), "boolean": True, "array": []}
    return samples.get(field["type"], {"name": "Al"}.get(name, "blue"))
