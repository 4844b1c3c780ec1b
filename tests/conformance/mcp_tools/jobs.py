"""Tools that take their time: tasks, once the tasks extension is served, and ordinary calls everywhere else."""

import asyncio
from typing import Annotated

from pydantic import Field

from mcp_django import MCPError, ToolError, tool


class JobError(MCPError):
    """The protocol error that `protocol_error_job` ends with."""

    code = 1001
    message = "The job failed with a protocol error"


@tool()
def greet(name: str) -> str:
    """Greet somebody at once."""
    return f"Hello, {name}!"


@tool()
async def slow_compute(seconds: Annotated[float, Field(ge=0, le=600)], label: str = "") -> str:
    """Wait without holding a thread, then say so.

    Args:
        seconds: How long.
        label: Repeated in the answer.
    """
    await asyncio.sleep(seconds)
    return f"Computed {label or 'the answer'} in {seconds:g} seconds"


@tool()
async def failing_job() -> str:
    """Fail after a second, with an error for the model."""
    await asyncio.sleep(1)
    raise ToolError("The job failed")


@tool()
async def protocol_error_job() -> str:
    """Fail with an error of the protocol."""
    raise JobError
