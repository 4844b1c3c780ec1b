"""The `mcp` 2.3 client against a server, in both of its modes: `python modern_client.py URL TOOL ARGUMENTS`.

Not a test module: `python -m tests.clients` runs it. Every check raises on failure.
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


async def check(url: str, mode: str, tool: str, arguments: dict[str, Any]) -> str:
    """List, call, and where the fixtures are served a tool that asks twice."""
    user = User()
    async with Client(url, mode=mode, elicitation_callback=user.elicit) as client:
        names = {listed.name for listed in (await client.list_tools()).tools}
        assert tool in names, f"{tool} is none of {sorted(names)}"
        result = await client.call_tool(tool, arguments)
        assert not result.is_error, result
        if "test_input_required_result_multi_round" in names:
            result = await client.call_tool("test_input_required_result_multi_round", {})
            assert result.content[0].text == "Multi-round complete for Al who likes blue", result
            assert len(user.asked) == 2, user.asked
        return f"{len(names)} tools, {tool} called, {len(user.asked)} questions answered, {client.protocol_version}"


async def main() -> None:
    url, tool, arguments = sys.argv[1], sys.argv[2], json.loads(sys.argv[3])
    for mode in ("legacy", "auto"):
        said = await check(url, mode, tool, arguments)
        sys.stdout.write(f"mcp 2.3, {mode} mode: {said}\n")


if __name__ == "__main__":
    asyncio.run(main())
