"""Check core tasks with the `mcp` 1.30 client: `legacy_tasks.py http URL CALLS`.

The script runs in the environment of `legacy_client.py`. A check raises on failure.
"""

import asyncio
import sys
import warnings
from typing import Any

from mcp import ClientSession, McpError, types
from mcp.client.streamable_http import streamable_http_client

ANSWERS: dict[str, Any] = {
    "Delete a.txt?": {"confirm": True},
    "First name?": {"name": "Ada"},
    "Second name?": {"name": "Bob"},
}
CALL_RESULT = types.CallToolResult


class User:
    """A user that answers each question, and records it."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    async def elicit(self, context: Any, params: Any) -> types.ElicitResult:
        self.asked.append(params.message)
        return types.ElicitResult(action="accept", content=ANSWERS[params.message])


async def start(session: ClientSession, tool: str, **arguments: Any) -> str:
    created = await session.experimental.call_tool_as_task(tool, arguments)
    assert created.task.status == "working", created
    return created.task.taskId


async def finish(session: ClientSession, id: str) -> types.CallToolResult:
    """Poll until the task has ended or asks, then wait in `tasks/result`."""
    async for status in session.experimental.poll_task(id):
        if status.status == "input_required":
            break
    return await session.experimental.get_task_result(id, CALL_RESULT)


async def run(session: ClientSession, tool: str, **arguments: Any) -> str:
    result = await finish(session, await start(session, tool, **arguments))
    assert result.meta, result
    return f"{'error: ' if result.isError else ''}{result.content[0].text}"


async def refused(session: ClientSession) -> str:
    try:
        return await run(session, "protocol_error_job")
    except McpError as problem:
        return f"{problem.error.code}: {problem.error.message}"


async def cancelled(session: ClientSession) -> str:
    id = await start(session, "slow_compute", seconds=60)
    await session.experimental.cancel_task(id)
    listed = (await session.experimental.list_tasks()).tasks
    assert id in [task.taskId for task in listed], listed
    return (await session.experimental.get_task(id)).status


async def check(target: str) -> str:
    warnings.simplefilter("ignore", DeprecationWarning)  # 1.30 warns that 2.0 has no core tasks
    user = User()
    async with (
        streamable_http_client(target) as (read, write, *_),
        ClientSession(read, write, elicitation_callback=user.elicit) as session,
    ):
        hello = await session.initialize()
        ended = await asyncio.gather(
            run(session, "slow_compute", seconds=0.2, label="x"),
            run(session, "failing_job"),
            refused(session),
            cancelled(session),
            run(session, "confirm_delete", filename="a.txt"),
            run(session, "multi_input"),
        )
    assert ended == [
        "Computed x in 0.2 seconds",
        "error: The job failed",
        "1001: The job failed with a protocol error",
        "cancelled",
        "Deleted a.txt",
        "Names: Ada, Bob",
    ], ended
    assert sorted(user.asked) == sorted(ANSWERS), user.asked
    return f"{len(ended)} tasks, {len(user.asked)} questions answered, {hello.protocolVersion}"


if __name__ == "__main__":
    sys.stdout.write(asyncio.run(check(sys.argv[2])))
