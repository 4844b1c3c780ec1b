"""The composition root: settings become servers. Nothing else in the package makes an object that serves of a dotted
path of `MCP`.

Everything here is made at its first use, kept for the process, and made anew when a setting it came from changes.
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
