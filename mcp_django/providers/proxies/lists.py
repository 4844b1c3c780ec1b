"""The lists of a remote: which there are, and how they are fetched."""

from typing import Any

from ...client import Client
from ...client.errors import CallError
from .failures import METHOD_NOT_FOUND
from .shelves import Fetched

LISTED = {
    "tools": ("tools/list", "tools", "tools"),
    "resources": ("resources/list", "resources", "resources"),
    "templates": ("resources/templates/list", "resourceTemplates", "resources"),
    "prompts": ("prompts/list", "prompts", "prompts"),
}
"""Collections: the method that lists them, the member of its result, and the capability behind it."""
CHANGED = {"tools": ("tools",), "resources": ("resources", "templates"), "prompts": ("prompts",)}
"""What a change of a list means."""
PAGES, ENTRIES = 100, 2000
"""Of one list."""


async def fetch(client: Client, kind: str, timeout: float) -> Fetched:
    """One list, by the collection's name: as many pages as there are, within bounds. Each has `timeout` seconds. Raises
    ClientError.
    """
    method, member, capability = LISTED[kind]
    if getattr(client.capabilities, capability, None) is None:
        return Fetched([], None)
    entries: list[Any] = []
    cursor: dict[str, Any] = {}
    ttl: float | None = None
    for _ in range(PAGES):
        try:
            page = await client.exchange(method, cursor, timeout=timeout)
        except CallError as problem:
            if problem.code != METHOD_NOT_FOUND:
                raise
            break  # it has the capability, and not this part of it
        given, told_ttl, following = page.get(member), page.get("ttlMs"), page.get("nextCursor")
        entries += given if type(given) is list else []
        if type(told_ttl) is int:
            ttl = told_ttl / 1000 if ttl is None else min(ttl, told_ttl / 1000)
        if type(following) is not str or len(entries) >= ENTRIES:
            break
        cursor = {"cursor": following}
    return Fetched(entries[:ENTRIES], ttl)
