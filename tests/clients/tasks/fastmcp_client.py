"""Check tasks with FastMCP's client: `python fastmcp_client.py http URL CALLS`.

The script runs in an environment with FastMCP and fastmcp-tasks, which `python -m tests.clients` makes. A check raises
on failure.
"""

import asyncio
import sys
from typing import Any

from fastmcp import Client
from fastmcp_tasks.client import call_tool_task

ANSWERS: dict[str, Any] = {
    "Delete a.txt?": {"confirm": True},
    "First name?": {"name": "Ada"},
    "Second name?": {"name": "Bob"},
}
asked: list[str] = []


async def elicit(message: str, response_type: Any, params: Any, context: Any) -> Any:
    asked.append(message)
    return ANSWERS[message]


async def run(client: Client[Any], tool: str, **arguments: Any) -> str:
    """Call a tool; the client polls by itself."""
    result = await client.call_tool(tool, arguments, raise_on_error=False)
    return f"{'error: ' if result.is_error else ''}{result.content[0].text}"


async def refused(client: Client[Any]) -> str:
    try:
        return await run(client, "protocol_error_job")
    except Exception as problem:
        return str(problem)


async def cancelled(client: Client[Any]) -> str:
    handle = await call_tool_task(client, "slow_compute", {"seconds": 60})
    assert (await handle.status()).status == "working"
    await handle.cancel()
    return (await handle.status()).status


async def check(target: str) -> str:
    async with Client(target, elicitation_handler=elicit) as client:
        ended = await asyncio.gather(
            run(client, "slow_compute", seconds=0.2, label="x"),
            run(client, "failing_job"),
            refused(client),
            cancelled(client),
            run(client, "confirm_delete", filename="a.txt"),
            run(client, "multi_input"),
        )
        spoken = client.session.protocol_version
    failure = ended.pop(2)
    assert "The job failed with a protocol error" in failure, failure
    assert ended == [
        "Computed x in 0.2 seconds",
        "error: The job failed",
        "cancelled",
        "Deleted a.txt",
        "Names: Ada, Bob",
    ], ended
    assert sorted(asked) == sorted(ANSWERS), asked
    return f"6 tasks, {len(asked)} questions answered, {spoken}"


if __name__ == "__main__":
    sys.stdout.write(asyncio.run(check(sys.argv[2])))
