"""System checks of apps: their templates, links, policies and size."""

from collections.abc import Iterable, Iterator, Sequence
from html.parser import HTMLParser
from urllib.parse import urlsplit

from django.core.checks import CheckMessage, Error, Warning

from mcp_django.contrib.apps.confirmation.suspension import ANSWER_TOOL
from mcp_django.contrib.apps.csp import get_static_origin
from mcp_django.contrib.apps.declaration import App, find_app, list_apps
from mcp_django.contrib.apps.pages import render_page
from mcp_django.extensions.calls import Server
from mcp_django.extensions.primitives import Tool
from mcp_django.extensions.schemas import call_in_default_language

MAX_PAGE_BYTES = 512 * 1024
"""Size above which clients load a page slowly, or refuse it."""
_LOADED_ATTRIBUTES = {"src", "poster", "data"}
_HINT = "docs/talk-back/apps.md describes apps."


def check_apps(server: Server) -> Iterator[CheckMessage]:
    """Check the apps of a server, and the tools that they show."""
    shown: dict[App, Tool] = {}
    for tool in server.registry.tools:
        app = find_app(tool, server.registry)
        if app is not None:
            shown.setdefault(app, tool)
        elif tool.ui is not None and tool.ui.app is not None:
            yield Error(
                f"{tool.source}: ui={tool.ui.app!r} names no app of the server {server.alias!r}.",
                hint=f"Declare it: app({tool.ui.app!r}, template=...). {_HINT}",
                id="mcp_django.E064",
            )
        if tool.ui is not None and "model" not in tool.ui.visibility and not (tool.permission or tool.scopes):
            yield Warning(
                f"{tool.source}: the tool {tool.name} is for apps only, and all callers may call it.",
                hint="visibility is no permission: a model or a program can call the tool as well. Add permission=.",
                id="mcp_django.W062",
            )

    hiding = server.registry.tools.get(ANSWER_TOOL)
    if hiding is not None:
        yield Error(
            f"{hiding.source}: the tool {ANSWER_TOOL} hides the tool of this name by which apps answer questions.",
            hint="Rename it, or give its toolset or mount a prefix.",
            id="mcp_django.E065",
        )
    for app in list_apps(server.registry):
        if app not in shown:
            yield Warning(
                f"{app.source}: no tool of the server {server.alias!r} has ui={app.name!r}, so it is not served.",
                hint=f"Add ui={app.name!r} to a tool, or remove the app. {_HINT}",
                id="mcp_django.W065",
            )
    for app, tool in shown.items():
        yield from _check_page(app, tool)


def _check_page(app: App, tool: Tool) -> Iterator[CheckMessage]:
    try:
        html = call_in_default_language(render_page, tool, app)
    except Exception as problem:
        yield Error(
            f"{app.source}: the template {app.template!r} fails: {type(problem).__name__}: {problem}",
            hint="The page is rendered without a request, a user and the database.",
            id="mcp_django.E063",
        )
        return

    size = len(html.encode())
    if size > MAX_PAGE_BYTES:
        yield Warning(
            f"{app.source}: the page has {size // 1024} KB, more than {MAX_PAGE_BYTES // 1024} KB.",
            hint='Load large files with csp="static" instead, or shrink them.',
            id="mcp_django.W064",
        )
    for source in find_blocked_sources(app, html):
        yield Warning(
            f"{app.source}: the page loads {source!r}, which clients block.",
            hint="Insert static files with app_js, app_css or app_image, or list the origin in csp=.",
            id="mcp_django.W063",
        )


def find_blocked_sources(app: App, html: str) -> list[str]:
    """Return the sources of a page that its policy does not cover, each once."""
    parser = _SourceParser()
    parser.feed(html)
    static_origins = [get_static_origin()] if app.csp.static else []
    permitted = {
        "frame": app.csp.frame_domains,
        "base": app.csp.base_uri_domains,
        "resource": (*app.csp.resource_domains, *static_origins),
    }
    blocked = (source for kind, source in parser.sources if not _is_covered(source, permitted[kind]))
    return list(dict.fromkeys(blocked))


def _is_covered(source: str, domains: Sequence[str] | Iterable[str]) -> bool:
    """Return True if a source is inside the page, or at one of the origins."""
    if not source.strip() or source.startswith("#"):
        return True
    parts = urlsplit(source.strip())
    if parts.scheme in ("data", "about", "blob"):
        return True
    if not parts.netloc:
        return False  # an app has no base URL
    for domain in domains:
        origin = urlsplit(domain)
        if parts.scheme not in ("", origin.scheme):
            continue
        if origin.netloc == parts.netloc or (
            origin.netloc.startswith("*.") and parts.netloc.endswith(origin.netloc.removeprefix("*"))
        ):
            return True
    return False


class _SourceParser(HTMLParser):
    """Collector of the URLs that a page loads."""

    def __init__(self) -> None:
        super().__init__()
        self.sources: list[tuple[str, str]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        kind = {"iframe": "frame", "frame": "frame", "base": "base"}.get(tag, "resource")
        for name, value in attrs:
            is_loaded = name in _LOADED_ATTRIBUTES or (name == "href" and tag in ("link", "base", "image", "use"))
            if value is not None and is_loaded:
                self.sources.append((kind, value))
