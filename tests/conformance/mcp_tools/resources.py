"""Resources and a template."""

import json

from mcp_django import resource
from tests.conformance.mcp_tools.media import PNG


@resource("test://static-text", title="Static Text Resource", mime_type="text/plain")
def static_text() -> str:
    """A static text resource for testing."""
    return "This is the content of the static text resource."


@resource("test://static-binary", title="Static Binary Resource", mime_type="image/png")
def static_binary() -> bytes:
    """A static binary resource for testing."""
    return PNG


@resource("test://template/{id}/data", title="Resource Template", mime_type="application/json")
def template(id: str) -> str:
    """A resource template with a parameter."""
    return json.dumps({"id": id, "templateTest": True, "data": f"Data for ID: {id}"}, separators=(",", ":"))
