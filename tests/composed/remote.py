"""A remote server on the official SDK: `python -m tests.composed.remote PORT`."""

import sys

from mcp.server.mcpserver import Context, MCPServer

server = MCPServer("remote")


@server.tool()
async def echo(message: str) -> str:
    """Echo a message."""
    return f"Echo: {message}"


@server.tool()
async def credential(ctx: Context) -> str:
    """Return the credential of the caller."""
    headers = ctx.headers or {}
    return str(headers.get("authorization"))


@server.resource("thing://one", mime_type="text/plain")
async def one() -> str:
    return "the first"


@server.prompt()
async def plan(city: str) -> str:
    return f"Go to {city}"


if __name__ == "__main__":
    server.run("streamable-http", host="127.0.0.1", port=int(sys.argv[1]))
