"""OpenAPI documents as toolsets: operations become tools or resources of a server.

It needs httpx, and PyYAML for documents in YAML (`pip install mcp-django-channels[openapi]`).
"""

from mcp_django.contrib.openapi.document.routes import Route
from mcp_django.contrib.openapi.toolset import OpenAPIToolset

__all__ = ["OpenAPIToolset", "Route"]
