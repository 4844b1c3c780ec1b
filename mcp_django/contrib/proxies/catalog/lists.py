"""Lists of a remote server: their methods, and fetching all pages."""

from typing import Any

from mcp_django.client import CallError, Client
from mcp_django.client.options import TASKS_EXTENSION
from mcp_django.contrib.proxies.catalog.catalog_cache import FetchedList
from mcp_django.contrib.proxies.catalog.components import MAX_ENTRY_BYTES
from mcp_django.contrib.proxies.forwarding.failures import METHOD_NOT_FOUND
from mcp_django.extensions.calls import get_logger, jsonrpc, sanitize_label
from mcp_django.extensions.primitives import list_app_uris, remove_app_uris
from mcp_django.providers.prefixes import UI_SCHEME

logger = get_logger("mcp_django.client")

LIST_METHODS = {
    "tools": ("tools/list", "tools", "tools"),
    "resources": ("resources/list", "resources", "resources"),
    "templates": ("resources/templates/list", "resourceTemplates", "resources"),
    "prompts": ("prompts/list", "prompts", "prompts"),
}
"""Collections: list method, member of its result, and required capability."""
AFFECTED_LISTS = {"tools": ("tools",), "resources": ("resources", "templates"), "prompts": ("prompts",)}
"""Collections affected by each kind of list change."""
MAX_PAGES, MAX_ENTRIES, MAX_LIST_BYTES = 100, 2000, 8 * 1024 * 1024
"""Maximum pages, entries and bytes of one list; bytes of JSON in its entries."""


async def fetch_list(client: Client, kind: str, timeout: float) -> FetchedList:
    """Fetch all pages of a list within the limits; each page has `timeout` seconds.

    Raises ClientError.
    """
    method, member, capability = LIST_METHODS[kind]
    if getattr(client.capabilities, capability, None) is None:
        return FetchedList([], None)
    offers_tasks = kind == "tools" and TASKS_EXTENSION in (client.capabilities.extensions or {})
    entries: list[Any] = []
    bytes_left = MAX_LIST_BYTES
    cursor: dict[str, Any] = {}
    ttl: float | None = None

    for _ in range(MAX_PAGES):
        try:
            page = await client.exchange(method, cursor, timeout=timeout)
        except CallError as problem:
            if problem.code != METHOD_NOT_FOUND:
                raise
            break  # the server has the capability, but not this list method
        given, page_ttl, next_cursor = page.get(member), page.get("ttlMs"), page.get("nextCursor")

        for entry in given if type(given) is list else ():
            bytes_left -= _measure(entry)
            if bytes_left < 0:
                logger.warning("List truncated, too large: %s of the server %r", kind, client.alias)
                return FetchedList(entries[:MAX_ENTRIES], ttl)
            entries.append(_mark_task_support(entry) if offers_tasks and type(entry) is dict else entry)

        if type(page_ttl) is int:
            ttl = page_ttl / 1000 if ttl is None else min(ttl, page_ttl / 1000)
        if type(next_cursor) is not str or len(entries) >= MAX_ENTRIES:
            break
        cursor = {"cursor": next_cursor}
    return FetchedList(entries[:MAX_ENTRIES], ttl)


async def keep_listed_pages(client: Client, fetched: FetchedList, timeout: float) -> FetchedList:
    """Return a list of tools whose links lead to pages that the same server lists. Raises ClientError.

    A link to another URI could lead to a page of this project, or of another server, which would then show the results
    and the questions of this one.
    """
    if not any(list_app_uris(entry.get("_meta")) for entry in fetched.entries if type(entry) is dict):
        return fetched
    resources = [entry for entry in (await fetch_list(client, "resources", timeout)).entries if type(entry) is dict]
    uris = {uri for entry in resources if type(uri := entry.get("uri")) is str}
    return fetched._replace(entries=[_keep_listed_page(entry, uris, client.alias) for entry in fetched.entries])


def _keep_listed_page(entry: Any, uris: set[str], alias: str | None) -> Any:
    links = list_app_uris(entry.get("_meta")) if type(entry) is dict else []
    if all(uri.startswith(UI_SCHEME) and uri in uris for uri in links):
        return entry
    name = sanitize_label(str(entry.get("name")))
    logger.warning("Link to a page that the server %r does not list left out of its tool: %s", alias, name)
    return {**entry, "_meta": remove_app_uris(entry["_meta"])}


def _mark_task_support(entry: dict[str, Any]) -> dict[str, Any]:
    """Return the entry of a server with the extension for tasks, which decides for each call.

    The mark is that of the handshake era, where each tool declares its support.
    """
    return {**entry, "execution": {"taskSupport": "optional"}}


def _measure(entry: Any) -> int:
    try:
        return len(jsonrpc.dumps(entry))
    except (TypeError, ValueError):
        return MAX_ENTRY_BYTES  # too large, so that the entry is skipped
