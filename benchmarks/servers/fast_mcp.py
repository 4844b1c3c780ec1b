# mypy: disable-error-code="import-not-found, untyped-decorator"
"""FastMCP. env: PORT, NTOOLS, JSON=1 for its `json_response` mode.

FastMCP has an environment of its own (`benchmarks.peers`), which mypy does not read.
"""

import os
from collections.abc import Awaitable, Callable

import uvicorn
from fastmcp import Context, FastMCP

server = FastMCP("benchmarks")
ITEMS = {number: f"item-{number}" for number in range(1, 1001)}


@server.tool
async def add(a: int, b: int) -> int:
    """Add two integers."""
    return a + b


@server.tool
async def echo(text: str) -> str:
    """Echo the text."""
    return text


@server.tool
async def countdown(steps: int, ctx: Context) -> str:
    """Emit progress notifications."""
    for step in range(steps):
        await ctx.report_progress(step + 1, steps)
    return "done"


@server.tool
async def lookup(pk: int) -> str:
    """Look an item up."""
    return ITEMS[pk]


@server.tool
async def greet(name: str = "you", excited: bool = False) -> str:
    """Greet someone."""
    return f"hi {name}{'!' if excited else ''}"


def filler(number: int) -> Callable[..., Awaitable[str]]:
    """Return another tool, which makes the list longer."""

    async def fill(a: int, b: str = "x", c: bool = False) -> str:
        return f"{a}{b}{c}"

    fill.__name__, fill.__doc__ = f"tool_{number}", f"Filler tool number {number}."
    return fill


for extra in range(5, int(os.environ.get("NTOOLS", "5"))):
    server.tool(filler(extra))

if __name__ == "__main__":
    uvicorn.run(
        server.http_app(path="/mcp", json_response=os.environ.get("JSON") == "1"),
        host="127.0.0.1",
        port=int(os.environ["PORT"]),
        loop="uvloop",
        http="httptools",
        access_log=False,
        log_level="warning",
    )
