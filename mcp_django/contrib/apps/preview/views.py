"""Views: the host page, requests of its script, and the document in its frame."""

from typing import Any

from django.contrib.auth.decorators import login_not_required
from django.core.exceptions import PermissionDenied
from django.db import transaction
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect, JsonResponse
from django.http.response import HttpResponseBase
from django.utils.decorators import method_decorator
from django.views import View
from django.views.decorators.clickjacking import xframe_options_sameorigin
from django.views.decorators.csrf import csrf_protect

from mcp_django import wiring
from mcp_django.contrib.apps.preview.host import AppHost, build_document
from mcp_django.contrib.apps.preview.links import read_arguments
from mcp_django.contrib.apps.preview.options import is_enabled, may_preview
from mcp_django.extensions.callers import ALL_SCOPES, PROJECT_ISSUER, DjangoPrincipal
from mcp_django.extensions.calls import jsonrpc
from mcp_django.extensions.errors import InvalidRequest, MCPError, Overloaded, ParseError
from mcp_django.extensions.html_pages import add_security_headers, build_login_url, get_static_source, render_clean

KIND = "apps_preview"
"""Kind of the principals of the preview, and their client."""


@method_decorator([transaction.non_atomic_requests, login_not_required, csrf_protect], name="dispatch")
class PreviewView(View):
    """Base class: checks access, and finds the server.

    Unauthenticated users are redirected to the login.
    """

    http_method_names = ["get", "head"]

    def dispatch(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        if not is_enabled():
            raise Http404("The preview of apps is off: set DEBUG or a permission in MCP['APPS_PREVIEW']")
        if not request.user.is_authenticated:
            return add_security_headers(HttpResponseRedirect(build_login_url(request, request.get_full_path())))
        if not may_preview(request.user):
            raise PermissionDenied
        return super().dispatch(request, *args, **kwargs)

    def get_host(self, alias: str) -> AppHost:
        """Return the host for the user on a server. Raises Http404."""
        if alias not in wiring.list_aliases():
            raise Http404(f"No server has the alias {alias!r}")
        return AppHost(alias, _build_principal(self.request.user))


class PreviewPageView(PreviewView):
    """The host page. `?server=…&tool=…` selects the tool, and links have sealed arguments for it."""

    def get(self, request: HttpRequest) -> HttpResponse:
        """Render the page."""
        aliases = list(wiring.list_aliases())
        alias = request.GET.get("server", aliases[0])
        problem = ""
        try:
            tools = self.get_host(alias).list_app_tools()
        except (MCPError, Overloaded) as error:
            tools, problem = [], str(error)
        context = {
            "aliases": aliases,
            "alias": alias,
            "tools": tools,
            "selected": request.GET.get("tool", ""),
            "problem": problem,
            "user_name": request.user.get_username(),
            "data": {
                "server": alias,
                "arguments": read_arguments(request),
                "tools": {
                    tool.name: {"uri": tool.uri, "example": tool.example, "definition": tool.definition}
                    for tool in tools
                },
            },
        }
        response = HttpResponse(render_clean("mcp_apps/preview.html", context, request))
        response["Content-Security-Policy"] = _build_page_policy()
        return add_security_headers(response)


class RequestView(PreviewView):
    """A request to the server, by the model (`visibility=model`) or by a view (`visibility=app`).

    The form field `request` holds the method and the params as JSON.
    """

    http_method_names = ["post"]

    def post(self, request: HttpRequest) -> HttpResponse:
        """Send the request as the user, and return `result` or `error`."""
        try:
            message = jsonrpc.decode(request.POST.get("request", ""))
        except (ParseError, InvalidRequest):
            message = None
        visibility = request.POST.get("visibility")
        if not _is_request(message) or visibility not in ("app", "model"):
            problem = {"code": InvalidRequest.code, "message": "Invalid request"}
            return add_security_headers(JsonResponse({"error": problem}, status=400))
        host = self.get_host(request.POST.get("server", ""))
        response = host.send_request(message["method"], message["params"], visibility=visibility)
        return add_security_headers(JsonResponse(response))


@method_decorator(xframe_options_sameorigin, name="dispatch")
class FrameView(PreviewView):
    """The document of a view, in an opaque origin and under the declared policy."""

    def get(self, request: HttpRequest) -> HttpResponse:
        """Return the document, or 404 with the reason as plain text."""
        return build_document(self.get_host(request.GET.get("server", "")), request.GET.get("uri", ""))


def _build_principal(user: Any) -> DjangoPrincipal:
    """Return the principal of a user in the preview, with all scopes."""
    return DjangoPrincipal(
        issuer=PROJECT_ISSUER, subject=str(user.pk), client_id=KIND, user=user, scopes=ALL_SCOPES, kind=KIND
    )


def _is_request(message: Any) -> bool:
    return (
        isinstance(message, dict) and isinstance(message.get("method"), str) and isinstance(message.get("params"), dict)
    )


def _build_page_policy() -> str:
    source = get_static_source()
    return (
        f"default-src 'self'; script-src {source}; style-src {source}; img-src {source}; connect-src 'self'; "
        "frame-src 'self'; object-src 'none'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
    )
