"""Composition root: builds servers and their services from the settings.

Only this package creates serving objects from dotted paths of `MCP`. `process` holds the table of the services.
"""

from mcp_django.wiring.process import (
    LOG_THREADS,
    PROCESS,
    create_authenticator,
    create_resource_authenticator,
    get_ports,
    get_server,
    get_services,
    list_aliases,
)
from mcp_django.wiring.servers import negotiates_language
from mcp_django.wiring.services import Services

__all__ = [
    "LOG_THREADS",
    "PROCESS",
    "Services",
    "create_authenticator",
    "create_resource_authenticator",
    "get_ports",
    "get_server",
    "get_services",
    "list_aliases",
    "negotiates_language",
]
