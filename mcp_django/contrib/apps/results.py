"""Results of tools with rendered HTML for the app, and text for the model."""

from collections.abc import Mapping
from typing import Any

from django.template.loader import render_to_string

from mcp_django.server.primitives.results import ToolResult

HTML_KEY = "html"
"""Member of `structuredContent` with HTML, which the bridge inserts into the page."""


def render_result(
    template: str,
    context: Mapping[str, Any] | None = None,
    *,
    text: Any,
    structured: Mapping[str, Any] | None = None,
    meta: Mapping[str, Any] | None = None,
) -> ToolResult:
    """Return a result with a rendered template for the app, and `text` for the model and for clients without apps.

    The HTML is `structuredContent.html`, beside the members of `structured`. Elements with `data-mcp-partial`, and the
    `data-mcp-target` of a call, get it as their content. It may contain data of the user.
    """
    html = render_to_string(template, dict(context or {}))
    return ToolResult(text, structured={**(structured or {}), HTML_KEY: html}, meta=dict(meta or {}))
