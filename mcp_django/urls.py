"""`path("", include("mcp_django.urls"))` serves every server of `MCP["SERVERS"]` at its path: `/mcp`, unless it says
otherwise.

Each path works with and without a slash at its end: a redirect would turn the POST into a GET.
"""

import functools
from typing import Any

from django.core.exceptions import ImproperlyConfigured
from django.core.signals import setting_changed
from django.dispatch import receiver
from django.urls import URLPattern, clear_url_caches, path

from .conf import forget, get_settings
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


@receiver(setting_changed)
def _renew(*, setting: str, **kwargs: Any) -> None:
    """Tests that override MCP get its servers, as they do through the other door."""
    if setting != "MCP":
        return
    try:
        urlpatterns[:] = _patterns()
    except ImproperlyConfigured:
        urlpatterns.clear()
    clear_url_caches()
    forget()  # a test may go on to change the setting by hand, without a signal
