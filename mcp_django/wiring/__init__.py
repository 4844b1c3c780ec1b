"""Composition root: builds servers and their services from the settings.

Only this package creates serving objects from dotted paths of `MCP`. Objects are created at first use, cached for the
process, and recreated after a change of their settings.
"""

from mcp_django.wiring.authentication import create_authenticator, get_resource_registry
from mcp_django.wiring.servers import get_ports, get_server, list_aliases, negotiates_language
from mcp_django.wiring.services import (
    LOG_THREADS,
    get_background_slots,
    get_call_streams,
    get_database_readiness,
    get_elicitation_pages,
    get_event_id_codec,
    get_event_publisher,
    get_executor,
    get_lifecycle,
    get_log_executor,
    get_replay_limits,
    get_sse_message_routers,
    get_stream_limiter,
    get_wait_limiter,
)

__all__ = [
    "LOG_THREADS",
    "create_authenticator",
    "get_background_slots",
    "get_call_streams",
    "get_database_readiness",
    "get_elicitation_pages",
    "get_event_id_codec",
    "get_event_publisher",
    "get_executor",
    "get_lifecycle",
    "get_log_executor",
    "get_ports",
    "get_replay_limits",
    "get_resource_registry",
    "get_server",
    "get_sse_message_routers",
    "get_stream_limiter",
    "get_wait_limiter",
    "list_aliases",
    "negotiates_language",
]
