"""Composition root: builds servers and their services from the settings.

Only this package creates serving objects from dotted paths of `MCP`. Objects are created at first use, cached for the
process, and recreated after a change of their settings.
"""

from mcp_django.wiring.authentication import authenticator, resources
from mcp_django.wiring.servers import aliases, get_server, negotiates_language, ports
from mcp_django.wiring.services import (
    LOG_LANES,
    background_places,
    call_streams,
    event_ids,
    executor,
    feeds,
    lifecycle,
    listens,
    log_executor,
    pages,
    posts,
    stream_bounds,
)

__all__ = [
    "LOG_LANES",
    "aliases",
    "authenticator",
    "background_places",
    "call_streams",
    "event_ids",
    "executor",
    "feeds",
    "get_server",
    "lifecycle",
    "listens",
    "log_executor",
    "negotiates_language",
    "pages",
    "ports",
    "posts",
    "resources",
    "stream_bounds",
]
