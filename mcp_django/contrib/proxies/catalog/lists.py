"""The lists of a remote: which there are, and how they are fetched."""

import logging
from typing import Any

from mcp_django.client import Client
from mcp_django.client.errors import CallError
from mcp_django.contrib.proxies.catalog.catalog_cache import Fetched
from mcp_django.contrib.proxies.catalog.components import ENTRY_BYTES
from mcp_django.contrib.proxies.forwarding.failures import METHOD_NOT_FOUND
from mcp_django.protocol import jsonrpc

logger = logging.getLogger("mcp_django.client")

LISTED = {
    "tools": ("tools/list", "tools", "tools"),
    "resources": ("resources/list", "resources", "resources"),
    "templates": ("resources/templates/list", "resourceTemplates", "resources"),
    "prompts": ("prompts/list", "prompts", "prompts"),
}
"""Collections: the method that lists them, the member of its result, and the capability behind it."""
CHANGED = {"tools": ("tools",), "resources": ("resources", "templates"), "prompts": ("prompts",)}
"""What a change of a list means."""
PAGES, ENTRIES, BYTES = 100, 2000, 8 * 1024 * 1024
"""Of one list; the bytes are those of JSON in its entries."""


async def fetch(client: Client, kind: str, timeout: float) -> Fetched:
    """One list, by the collection's name: as many pages as there are, within bounds. Each has `timeout` seconds. Raises
    ClientError.
    """
    method, member, capability = LISTED[kind]
    if getattr(client.capabilities, capability, None) is None:
        return Fetched([], None)
    entries: list[Any] = []
    left = BYTES
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
        for entry in given if type(given) is list else ():
            left -= _size(entry)
            if left < 0:
                logger.warning("The %s of the server %r are too large, and cut", kind, client.alias)
                return Fetched(entries[:ENTRIES], ttl)
            entries.append(entry)
        if type(told_ttl) is int:
            ttl = told_ttl / 1000 if ttl is None else min(ttl, told_ttl / 1000)
        if type(following) is not str or len(entries) >= ENTRIES:
            break
        cursor = {"cursor": following}
    return Fetched(entries[:ENTRIES], ttl)


def _size(entry: Any) -> int:
    try:
        return len(jsonrpc.dumps(entry))
    except (TypeError, ValueError):
        return ENTRY_BYTES  # it will be left out
