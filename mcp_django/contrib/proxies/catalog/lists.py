"""Lists of a remote server: their methods, and fetching all pages."""

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
"""Collections: list method, member of its result, and required capability."""
CHANGED = {"tools": ("tools",), "resources": ("resources", "templates"), "prompts": ("prompts",)}
"""Collections affected by each kind of list change."""
PAGES, ENTRIES, BYTES = 100, 2000, 8 * 1024 * 1024
"""Maximum pages, entries and bytes of one list; bytes of JSON in its entries."""


async def fetch(client: Client, kind: str, timeout: float) -> Fetched:
    """Fetch all pages of a list within the limits; each page has `timeout` seconds.

    Raises ClientError.
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
            break  # the server has the capability, but not this list method
        given, told_ttl, following = page.get(member), page.get("ttlMs"), page.get("nextCursor")

        for entry in given if type(given) is list else ():
            left -= _size(entry)
            if left < 0:
                logger.warning("List truncated, too large: %s of the server %r", kind, client.alias)
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
        return ENTRY_BYTES  # too large, so that the entry is skipped
