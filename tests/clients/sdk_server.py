"""A server on the official SDK, for our client: `python sdk_server.py stdio|PORT`.

At a port it serves Streamable HTTP at /mcp and HTTP+SSE at /sse.
"""

import contextlib
import sys
from collections.abc import AsyncIterator
from typing import Any

import uvicorn
from mcp.server.mcpserver import Context, MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp_types import Completion, SamplingMessage, TextContent
from pydantic import BaseModel
from starlette.applications import Starlette

server = MCPServer("sdk", version="1.0.0", instructions="For tests.", log_level="ERROR")
WATCHED = "notes://watched"


class Name(BaseModel):
    """The form that asks a user for a name."""

    name: str


@server.tool()
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@server.tool()
async def count(to: int, ctx: Context) -> str:
    """Count, and report the progress."""
    for number in range(1, to + 1):
        await ctx.report_progress(number, to, f"at {number}")
    return f"counted to {to}"


@server.tool()
async def greet(ctx: Context) -> str:
    """Ask for a name, and have a model greet.

    This works only in the handshake era, because the SDK asks on the open connection.
    """
    asked: Any = await ctx.elicit("Who are you?", Name)
    question = SamplingMessage(role="user", content=TextContent(type="text", text=f"Greet {asked.data.name}"))
    said = await ctx.session.create_message([question], max_tokens=10)
    return str(said.content.text)


@server.tool()
async def change(ctx: Context) -> str:
    """Notify the client that the watched note changed."""
    await ctx.notify_resource_updated(WATCHED)
    return "changed"


@server.tool()
def fail() -> str:
    """Fail."""
    raise ToolError("no luck")


@server.resource(WATCHED)
def watched() -> str:
    """A note."""
    return "the note"


@server.resource("notes://{name}/text")
def note(name: str) -> str:
    """Any note."""
    return f"note of {name}"


@server.prompt()
def review(code: str) -> str:
    """Review code."""
    return f"Review {code}"


@server.completion()
async def complete(ref: Any, argument: Any, context: Any) -> Completion:
    return Completion(values=[word for word in ("alpha", "beta") if word.startswith(argument.value)])


def application() -> Starlette:
    """Build an application with both HTTP transports."""
    http, sse = server.streamable_http_app(), server.sse_app()

    @contextlib.asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        async with server.session_manager.run():
            yield

    return Starlette(routes=[*http.routes, *sse.routes], lifespan=lifespan)


if __name__ == "__main__":
    if sys.argv[1] == "stdio":
        server.run("stdio")
    else:
        uvicorn.run(application(), host="127.0.0.1", port=int(sys.argv[1]), log_level="warning")
