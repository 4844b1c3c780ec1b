"""Tools with mistakes: a name that is used twice, and an unknown server."""

from mcp_django import tool


@tool(name="search")
async def search_books() -> str:
    """Search books."""
    return "books"


@tool(name="search")
async def search_films() -> str:
    """Search films."""
    return "films"


@tool(server="stuff")
async def dismiss() -> str:
    """Dismiss somebody."""
    return "dismissed"
