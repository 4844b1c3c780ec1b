"""Hand-written handlers of MCP methods, for servers that compute their lists and calls themselves."""

from mcp_django.server.composition.lowlevel import Handlers

__all__ = ["Handlers"]
