"""A server on the official SDK in a process of its own: `python stdio_remote.py [sse-port]`."""

import os
import sys

from mcp.server.mcpserver import Context, MCPServer
from pydantic import BaseModel

server = MCPServer("process")


class Name(BaseModel):
    name: str


@server.tool()
def pid() -> int:
    """The process."""
    return os.getpid()


@server.tool()
def bearer(ctx: Context) -> str:
    """The token of the request, and of the one that opened the session."""
    return str((ctx.headers or {}).get("authorization"))


@server.tool()
async def greet(ctx: Context) -> str:
    answer = await ctx.elicit("Who are you?", Name)
    return f"Hello {answer.data.name}"


@server.tool()
def hang_up() -> None:
    """End in the middle of a call."""
    os._exit(1)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        server.run("streamable-http", host="127.0.0.1", port=int(sys.argv[1]))
    else:
        server.run("stdio")
