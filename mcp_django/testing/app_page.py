"""Pages of apps in tests: one page as a client would show it, and the rules of the protocol for it.

The rules are those of MCP Apps (`io.modelcontextprotocol/ui`), for the entries of both lists and for the content.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

APPS_IDENTIFIER = "io.modelcontextprotocol/ui"
APP_MIME_TYPE = "text/html;profile=mcp-app"
APPS_CAPABILITY: dict[str, Any] = {"extensions": {APPS_IDENTIFIER: {"mimeTypes": [APP_MIME_TYPE]}}}
"""Capability of a client that shows apps."""
_DOCTYPE = re.compile(r"\s*(<!--.*?-->\s*)*<!doctype html\b", re.IGNORECASE | re.DOTALL)
_ORIGIN = re.compile(r"(https|wss|http|ws)://(\*\.)?[^/*?#\s;,'\"]+")
_CSP_MEMBERS = {"connectDomains", "resourceDomains", "frameDomains", "baseUriDomains"}
_PERMISSIONS = {"camera", "microphone", "geolocation", "clipboardWrite"}
_UI_MEMBERS = {"csp", "permissions", "domain", "prefersBorder"}


@dataclass(frozen=True, slots=True, kw_only=True)
class AppDocument:
    """Page that a client shows for the results of a tool."""

    uri: str
    html: str
    tool: Mapping[str, Any]
    """Entry of the tool in `tools/list`."""
    entry: Mapping[str, Any] | None
    """Entry of the page in `resources/list`; None if it is not listed."""
    content: Mapping[str, Any]
    """Content of the page, as it was read."""
    read_result: Mapping[str, Any] = field(default_factory=dict)
    """Whole result of the read."""
    result: Mapping[str, Any] | None = None
    """Result of the tool, if it was called."""

    @property
    def csp(self) -> Mapping[str, Any]:
        """Origins that the page may use; empty for none."""
        csp: Mapping[str, Any] = self.content.get("_meta", {}).get("ui", {}).get("csp", {})
        return csp

    def find_problems(self) -> list[str]:
        """Return the broken rules; empty for a valid page."""
        return [
            *_check_tool(self.tool, self.uri),
            *_check_content(self.content, self.uri),
            *_check_entry(self.entry, self.content),
            *_check_result(self.result),
        ]


def _check_tool(tool: Mapping[str, Any], uri: str) -> Iterator[str]:
    ui = tool["_meta"]["ui"]
    if not uri.startswith("ui://"):
        yield f"the URI {uri!r} does not start with ui://"
    for name in sorted(set(ui) - {"resourceUri", "visibility"}):
        yield f"_meta.ui of the tool must not have {name!r}; it belongs to the resource"
    visibility = ui.get("visibility", ["model", "app"])
    if not isinstance(visibility, list) or not visibility or not set(visibility) <= {"model", "app"}:
        yield f"visibility {visibility!r} is no list of 'model' and 'app'"


def _check_content(content: Mapping[str, Any], uri: str) -> Iterator[str]:
    if content.get("uri") != uri:
        yield f"the content has the URI {content.get('uri')!r} instead of {uri!r}"
    if content.get("mimeType") != APP_MIME_TYPE:
        yield f"the content has the media type {content.get('mimeType')!r} instead of {APP_MIME_TYPE!r}"
    if not _DOCTYPE.match(content.get("text", "")):
        yield "the content is no HTML document with a doctype"
    yield from _check_policy(content.get("_meta", {}).get("ui", {}))


def _check_policy(ui: Mapping[str, Any]) -> Iterator[str]:
    for name in sorted(set(ui) - _UI_MEMBERS):
        yield f"_meta.ui has the unknown member {name!r}"
    csp = ui.get("csp", {})
    for name, origins in csp.items():
        if name not in _CSP_MEMBERS or not isinstance(origins, list):
            yield f"csp has an invalid member {name!r}"
            continue
        for origin in origins:
            if not isinstance(origin, str) or not _ORIGIN.fullmatch(origin):
                yield f"csp.{name}: {origin!r} is no origin"
    permissions = ui.get("permissions", {})
    if not set(permissions) <= _PERMISSIONS or any(value != {} for value in permissions.values()):
        yield f"permissions {permissions!r} are invalid"
    if "prefersBorder" in ui and not isinstance(ui["prefersBorder"], bool):
        yield "prefersBorder is no boolean"


def _check_entry(entry: Mapping[str, Any] | None, content: Mapping[str, Any]) -> Iterator[str]:
    if entry is None:
        return
    if entry.get("mimeType") != content.get("mimeType") or not entry.get("name"):
        yield "the entry of resources/list lacks a name, or has another media type than the content"
    if entry.get("_meta", {}).get("ui") != content.get("_meta", {}).get("ui"):
        yield "_meta.ui differs between resources/list and the content"


def _check_result(result: Mapping[str, Any] | None) -> Iterator[str]:
    if result is not None and not any(_is_readable(block) for block in result.get("content", ())):
        yield "the result of the tool has no text for clients without apps"


def _is_readable(block: Mapping[str, Any]) -> bool:
    return block.get("type") != "text" or bool(str(block.get("text", "")).strip())


def select_tool(name: str, tools: Sequence[Mapping[str, Any]], entries: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the tool of this name, or the one tool whose page has this name.

    Raises AssertionError unless there is exactly one.
    """
    linked = [tool for tool in tools if "resourceUri" in tool.get("_meta", {}).get("ui", {})]
    named = [tool for tool in linked if tool["name"] == name]
    shown = [tool for tool in linked if entries.get(tool["_meta"]["ui"]["resourceUri"], {}).get("name") == name]
    found = named or shown
    if len(found) != 1:
        known = ", ".join(sorted(tool["name"] for tool in (found or linked))) or "no tool"
        reason = "several tools show the app; name one of them" if found else "no visible tool has it; with an app"
        raise AssertionError(f"app {name!r}: {reason}: {known}")
    return found[0]
