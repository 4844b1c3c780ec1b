"""`path("", include("mcp_django.urls"))` serves every server of `MCP["SERVERS"]` at its path: `/mcp`, unless it says
otherwise.

Each path works with and without a slash at its end: a redirect would turn the POST into a GET.
"""

import functools

from django.urls import URLPattern, path

from .conf import get_settings
from .transports.http.endpoint import get_exchange
from .transports.http.view import as_view

app_name = "mcp_django"


def _patterns() -> list[URLPattern]:
    patterns = []
    for alias, server in get_settings().servers.items():
        view = as_view(functools.partial(get_exchange, alias))
        patterns += [path(server.path, view, name=alias), path(f"{server.path}/", view)]
    return patterns


urlpatterns = _patterns()
