"""Pages of apps: the rendered template for one tool, and its URI with a digest of the content.

A page has no data of users, so clients may cache it by its URI. A deployment that changes the page changes the URI.
"""

import hashlib
import re
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from django.conf import settings as django_settings
from django.template.loader import render_to_string, select_template

from mcp_django.contrib.apps.declaration import App
from mcp_django.contrib.apps.model_apps import build_page_data, list_template_names
from mcp_django.extensions import Call
from mcp_django.extensions.calls import get_logger
from mcp_django.extensions.primitives import Tool, ToolResult
from mcp_django.extensions.schemas import call_in_default_language

logger = get_logger("mcp_django.server")

IDENTIFIER = "io.modelcontextprotocol/ui"
MIME_TYPE = "text/html;profile=mcp-app"
"""Media type of apps; clients compare it literally."""
HTML_KEY = "html"
"""Member of `structuredContent` with HTML, which the bridge inserts into the page."""
DIGEST_CHARACTERS = 12
_URI = re.compile(rf"(ui://.+)-[0-9a-f]{{{DIGEST_CHARACTERS}}}\.html")
_DOCUMENT = re.compile(r"\s*(<!--.*?-->\s*)*<!doctype html\b", re.IGNORECASE | re.DOTALL)


def accepts_html(call: Call) -> bool:
    """Return True if the client declared the extension with the media type of HTML apps."""
    extensions = call.capabilities.get("extensions")
    declared = extensions.get(IDENTIFIER) if isinstance(extensions, dict) else None
    mime_types = declared.get("mimeTypes") if isinstance(declared, dict) else None
    return isinstance(mime_types, list) and MIME_TYPE in mime_types


class InvalidPage(ValueError):
    """Template that cannot be an app; the text has the reason."""


@dataclass(frozen=True, slots=True)
class PageSettings:
    """Variables of the template in `mcp_app`: the app and the tool that it shows."""

    name: str
    title: str
    tool: str
    """Name of the tool at its declaration."""
    prefix: str
    """Prefix of the tools on the server, such as `shop__`."""
    loads_static: bool
    """True if static files are loaded from their own origin."""


class Page(NamedTuple):
    """Rendered HTML and its URI."""

    uri: str
    html: str


class PageCache:
    """Rendered pages of one server, by tool and app.

    Without DEBUG each page is rendered once.
    """

    def __init__(self, alias: str) -> None:
        self._alias = alias
        self._pages: dict[tuple[Tool, App], Page | None] = {}
        self._lock = threading.Lock()

    def find(self, tool: Tool, app: App) -> Page | None:
        """Return the page of a tool; None for a template that fails, which is logged once."""
        key = tool, app
        if key not in self._pages:
            with self._lock:
                if key not in self._pages:
                    self._pages[key] = self._render_or_log(tool, app)
        return self._pages[key]

    def render_current(self, tool: Tool, app: App) -> str | None:
        """Return the HTML of a page, with DEBUG of the current template."""
        page = self._render_or_log(tool, app) if django_settings.DEBUG else self.find(tool, app)
        return None if page is None else page.html

    def _render_or_log(self, tool: Tool, app: App) -> Page | None:
        try:
            html = call_in_default_language(render_page, tool, app)
            digest = hashlib.sha256(html.encode()).hexdigest()[:DIGEST_CHARACTERS]
        except Exception:
            logger.exception("App %r of %s is not served: its template %r failed", app.name, tool.source, app.template)
            return None
        return Page(f"{get_base_uri(self._alias, tool, app)}-{digest}.html", html)


def get_base_uri(alias: str, tool: Tool, app: App) -> str:
    """Return the URI of a page without the digest."""
    return f"ui://{alias}/{app.name}/{tool.name}"


def split_digest(uri: str) -> str | None:
    """Return the URI of a page without its digest, or None for another URI."""
    matched = _URI.fullmatch(uri)
    return None if matched is None else matched[1]


def render_page(tool: Tool, app: App) -> str:
    """Render the template of an app for a tool.

    Raises InvalidPage if the result is no HTML document, and all errors of the template.
    """
    own_name = tool.origin.name
    settings = PageSettings(
        name=app.name,
        title=app.title or app.name,
        tool=own_name,
        prefix=tool.name.removesuffix(own_name),
        loads_static=app.csp.static,
    )
    context = {**app.context, "mcp_app": settings, "mcp_model": build_page_data(tool, settings.prefix)}
    html: str = select_template(list_template_names(tool, app)).render(context)
    if not _DOCUMENT.match(html):
        raise InvalidPage(f"{app.template} is no HTML document; begin it with <!doctype html>")
    return html


def render_result(
    template: str,
    context: Mapping[str, Any] | None = None,
    *,
    text: Any,
    structured: Mapping[str, Any] | None = None,
    meta: Mapping[str, Any] | None = None,
) -> ToolResult:
    """Return a result with a rendered template for the page, and `text` for the model.

    Clients without apps show the text, too.
    The HTML is `structuredContent.html`, beside the members of `structured`. Elements with `data-mcp-partial`, and the
    `data-mcp-target` of a call, get it as their content. It may contain data of the user.
    """
    html = render_to_string(template, dict(context or {}))
    return ToolResult(text, structured={**(structured or {}), HTML_KEY: html}, meta=dict(meta or {}))
