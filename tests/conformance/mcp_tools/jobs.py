"""Tools that take their time: tasks for clients with tasks, and ordinary calls for all others."""

import asyncio
from typing import Annotated

from pydantic import Field

from mcp_django import MCPError, ToolError, tool
from mcp_django.types import TaskOptions

AT_ONCE = TaskOptions(grace=0)
REQUIRED = TaskOptions(required=True, grace=0)


class JobError(MCPError):
    """The protocol error that `protocol_error_job` ends with."""

    code = 1001
    message = "The job failed with a protocol error"


@tool()
def greet(name: str) -> str:
    """Greet somebody at once."""
    return f"Hello, {name}!"


@tool(task=AT_ONCE)
async def slow_compute(seconds: Annotated[float, Field(ge=0, le=600)], label: str = "") -> str:
    """Wait without holding a thread, then say so.

    Args:
        seconds: How long.
        label: Repeated in the answer.
    """
    await asyncio.sleep(seconds)
    return f"Computed {label or 'the answer'} in {seconds:g} seconds"


@tool(task=REQUIRED)
async def failing_job() -> str:
    """Fail after a second, with an error for the model."""
    await asyncio.sleep(1)
    raise ToolError("The job failed")


@tool(task=AT_ONCE)
async def protocol_error_job() -> str:
    """Fail with an error of the protocol."""
    raise JobError
