"""The `mcp` 2.3 client against a server, in one of its modes: `python modern_client.py URL CALLS MODE`.

CALLS is a JSON object of tools and arguments; the first that the server lists is called. Not a test module:
`python -m tests.clients` runs it. Every check raises on failure.
"""

import asyncio
import json
import sys
from typing import Any

import mcp_types as types
from mcp import Client


class User:
    """Answers what the fixtures ask, and notes it."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    async def elicit(self, context: Any, params: Any) -> types.ElicitResult:
        self.asked.append(params.message)
        content = {name: "Al" if name == "name" else "blue" for name in params.requested_schema["properties"]}
        return types.ElicitResult(action="accept", content=content)


async def check(url: str, calls: dict[str, Any], mode: str) -> str:
    """List, call, and where the fixtures are served a tool that asks twice."""
    user = User()
    async with Client(url, mode=mode, elicitation_callback=user.elicit) as client:
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
        return f"{len(names)} tools, {tool} called, {len(user.asked)} questions answered, {client.protocol_version}"


if __name__ == "__main__":
    sys.stdout.write(asyncio.run(check(sys.argv[1], json.loads(sys.argv[2]), sys.argv[3])))
