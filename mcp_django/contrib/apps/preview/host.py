"""Calls of a host: the tools with an app, calls of tools, and reads of views, as one principal.

Each call runs through the whole engine, with the principal's permissions.
"""

import base64
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from asgiref.sync import async_to_sync
from django.http import HttpResponse

from mcp_django import wiring
from mcp_django.contrib.apps.pages import IDENTIFIER, MIME_TYPE
from mcp_django.contrib.apps.preview.policy import build_view_policy
from mcp_django.extensions.callers import DjangoPrincipal
from mcp_django.extensions.calls import InProcessClient, InProcessProfile
from mcp_django.extensions.errors import InvalidParams, MCPError, MethodNotFound, Overloaded
from mcp_django.extensions.html_pages import add_security_headers

OVERLOADED_CODE = -32000
HOST_EXTENSIONS: Final[Mapping[str, Any]] = {IDENTIFIER: {"mimeTypes": [MIME_TYPE]}}
"""Extension that a client declares which shows apps."""
EXAMPLE_VALUES: Final[Mapping[str, Any]] = {
    "string": "",
    "integer": 0,
    "number": 0,
    "boolean": False,
    "array": [],
    "object": {},
}
_HEAD = re.compile(r"<head(?:\s[^>]*)?>|<html(?:\s[^>]*)?>|<!doctype[^>]*>", re.IGNORECASE)
# Sends violations of the policy and uncaught errors to the host, before a script of the view runs.
_REPORTER = """<script>(() => {
const host = window.parent, post = host.postMessage.bind(host), text = String;
const report = (kind, detail) => post({jsonrpc: "2.0", method: "ui/notifications/sandbox-problem",
  params: {kind, detail: text(detail).slice(0, 500)}}, "*");
addEventListener("securitypolicyviolation", (event) =>
  report("violation", event.effectiveDirective + " " + (event.blockedURI || "inline")), true);
addEventListener("error", (event) => event.message && report("error", event.message), true);
addEventListener("unhandledrejection", (event) => report("error", event.reason), true);
document.currentScript.remove();
})();</script>"""


class ViewUnavailable(Exception):
    """A view that cannot be shown; the text is the reason."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AppTool:
    """A tool that has an app, as the page offers it."""

    name: str
    title: str
    description: str
    uri: str
    """URI of its view."""
    example: Mapping[str, Any]
    """Arguments to start with: defaults, and empty values for required ones."""
    definition: Mapping[str, Any]
    """The tool as the server lists it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HostedView:
    """The document of a view, with the policy of its frame."""

    html: str
    policy: str


class AppHost:
    """Host of apps on the server `alias`, for a principal.

    It declares the extension and no elicitation.
    """

    def __init__(self, alias: str, principal: DjangoPrincipal) -> None:
        profile = InProcessProfile(capabilities={"extensions": HOST_EXTENSIONS})
        self._client = InProcessClient(wiring.get_server(alias), principal, profile)

    def list_app_tools(self) -> list[AppTool]:
        """Return the tools that have an app and that a model may call. Raises MCPError, Overloaded."""
        return [
            AppTool(
                name=tool["name"],
                title=tool.get("title") or tool["name"],
                description=tool.get("description", ""),
                uri=_get_ui(tool)["resourceUri"],
                example=build_example(tool.get("inputSchema", {})),
                definition=tool,
            )
            for tool in self._list_all("tools/list", "tools")
            if isinstance(_get_ui(tool).get("resourceUri"), str) and is_visible(tool, "model")
        ]

    def send_request(self, method: str, params: Mapping[str, Any], *, visibility: str) -> dict[str, Any]:
        """Return the response to a request of the model or of a view: `result` or `error`.

        A view may call the tools that list `"app"` in their visibility, and the model those that list `"model"`.
        """
        try:
            if method == "tools/call":
                self._check_visibility(params.get("name"), visibility)
            elif method != "resources/read":
                raise MethodNotFound(f"A view cannot send {method!r}; use tools/call or resources/read")
            return {"result": async_to_sync(self._client.request)(method, dict(params))}
        except MCPError as problem:
            return {"error": {"code": problem.code, "message": str(problem)}}
        except Overloaded as problem:
            return {"error": {"code": OVERLOADED_CODE, "message": str(problem)}}

    def read_view(self, uri: str) -> HostedView:
        """Return the view of a `ui://` resource.

        Raises:
            ViewUnavailable: the resource does not exist for this user, or is no view.
        """
        if not uri.startswith("ui://"):
            raise ViewUnavailable(f"{uri!r} is not a view: its URI starts with ui://")
        response = self.send_request("resources/read", {"uri": uri}, visibility="app")
        if "error" in response:
            raise ViewUnavailable(response["error"]["message"])
        contents: dict[str, Any] = next((one for one in response["result"]["contents"] if one.get("uri") == uri), {})
        if contents.get("mimeType") != MIME_TYPE:
            raise ViewUnavailable(f"{uri} has the type {contents.get('mimeType')!r} instead of {MIME_TYPE!r}")

        html = contents["text"] if "text" in contents else base64.b64decode(contents["blob"]).decode(errors="replace")
        declaration = self._get_resource_ui(uri, contents).get("csp")
        return HostedView(
            html=insert_reporter(html),
            policy=build_view_policy(declaration if isinstance(declaration, dict) else {}),
        )

    def _get_resource_ui(self, uri: str, contents: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return `_meta.ui` of the contents, or of the entry in the list of resources."""
        if "ui" in contents.get("_meta", {}):
            return _get_ui(contents)
        entries = self._list_all("resources/list", "resources")
        return next((_get_ui(entry) for entry in entries if entry.get("uri") == uri), {})

    def _check_visibility(self, name: Any, visibility: str) -> None:
        tools = self._list_all("tools/list", "tools")
        tool = next((tool for tool in tools if tool["name"] == name), None)
        if tool is not None and not is_visible(tool, visibility):
            raise InvalidParams(f"The tool {name!r} is not visible to the {visibility}; add it to its visibility")

    def _list_all(self, method: str, member: str) -> list[dict[str, Any]]:
        return async_to_sync(self._client.list_all)(method, member)


def build_document(host: AppHost, uri: str) -> HttpResponse:
    """Return the response with a view, in an opaque origin and under its policy.

    An unavailable view has the status 404, with the reason as plain text. The `sandbox` directive of the policy holds
    without the frame, too.
    """
    try:
        view = host.read_view(uri)
    except ViewUnavailable as problem:
        response = HttpResponse(str(problem), status=404, content_type="text/plain; charset=utf-8")
        response["Content-Security-Policy"] = "sandbox; default-src 'none'; frame-ancestors 'self'"
    else:
        response = HttpResponse(view.html, content_type="text/html; charset=utf-8")
        response["Content-Security-Policy"] = view.policy
    add_security_headers(response)
    response["X-Frame-Options"] = "SAMEORIGIN"
    response["Referrer-Policy"] = "no-referrer"
    response["X-DNS-Prefetch-Control"] = "off"
    response["Permissions-Policy"] = "camera=(), microphone=(), geolocation=(), clipboard-write=()"
    return response


def is_visible(tool: Mapping[str, Any], visibility: str) -> bool:
    """Return True if a tool lists `visibility` ("model", "app"). Without a list it is visible to both."""
    listed = _get_ui(tool).get("visibility")
    return visibility in listed if isinstance(listed, list) else True


def build_example(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return arguments to start with, from an input schema."""
    required = schema.get("required", ())
    return {
        name: rule.get("default", EXAMPLE_VALUES.get(str(rule.get("type")), ""))
        for name, rule in schema.get("properties", {}).items()
        if name in required
    }


def insert_reporter(html: str) -> str:
    """Return a document whose first script reports violations of the policy to the host."""
    head = next((match for name in ("<head", "<html", "<!doctype") for match in _find_tags(html, name)), None)
    position = head.end() if head is not None else 0
    return f"{html[:position]}{_REPORTER}{html[position:]}"


def _find_tags(html: str, name: str) -> list[re.Match[str]]:
    return [match for match in _HEAD.finditer(html) if match[0].lower().startswith(name)][:1]


def _get_ui(entry: Mapping[str, Any]) -> Mapping[str, Any]:
    ui = entry.get("_meta", {}).get("ui")
    return ui if isinstance(ui, dict) else {}
