"""Apps of tools in the page: their documents for the acting user, and links to their preview."""

from collections.abc import Mapping
from typing import Any, Final

from django.apps import apps
from django.http import HttpRequest, HttpResponse
from django.utils.module_loading import import_string

from mcp_django.contrib.apps.preview.host import HOST_EXTENSIONS, AppHost, build_document
from mcp_django.contrib.playground.primitives import ListedPrimitive
from mcp_django.extensions.callers import DjangoPrincipal

APPS_PACKAGE = "mcp_django.contrib.apps"
NO_EXTENSIONS: Final[Mapping[str, Any]] = {}


def can_host_apps() -> bool:
    """Return True if the project has the host of apps."""
    return apps.is_installed(APPS_PACKAGE)


def find_host_extensions(entry: ListedPrimitive, app: str) -> Mapping[str, Any]:
    """Return the extensions that the client of a run declares.

    It shows apps if the tool has one, or if an app makes the call. `app` names the tool of that app; empty for the
    operator.
    """
    return HOST_EXTENSIONS if (app or entry.app_uri is not None) and can_host_apps() else NO_EXTENSIONS


def build_app_document(alias: str, principal: DjangoPrincipal, uri: str) -> HttpResponse:
    """Return the document of an app for its frame, as the principal reads it."""
    return build_document(AppHost(alias, principal), uri)


def build_preview_link(request: HttpRequest, alias: str, tool: str, arguments: Mapping[str, Any]) -> str | None:
    """Return the URL of the preview of an app; None if the user may not open it.

    The preview acts as the user of the request.
    """
    if not can_host_apps():
        return None
    found: str | None = import_string(f"{APPS_PACKAGE}.preview.links.build_link")(request, alias, tool, arguments)
    return found
