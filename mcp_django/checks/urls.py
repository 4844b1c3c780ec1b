"""System checks of the URLconf and MIDDLEWARE around the endpoint."""

from collections.abc import Iterator

from django.apps import apps
from django.core.checks import CheckMessage, Info, Tags, Warning
from django.urls import URLPattern, URLResolver, get_resolver

from mcp_django import conf
from mcp_django.checks.installation import register_check
from mcp_django.conf.project import is_served_over_asgi, middleware
from mcp_django.conf.readers import AUTH_NAMES

APP_NAME, TOOLKIT_APP_NAME = "mcp_django", "oauth2_provider"
REGISTRATION_VIEW_NAMES = {"list", "register"}
"""Names of views in which a logged-in user can register an OAuth client.

See oauth2_provider.urls, management_urlpatterns.
"""


@register_check(Tags.urls)
def check_doubled_path() -> Iterator[CheckMessage]:
    """Check that the include of `mcp_django.urls` does not repeat its path."""
    paths = [server.path for server in conf.get_settings().servers.values()]
    for prefix, _ in _iter_included(APP_NAME):
        last = prefix.strip("/").rpartition("/")[2]
        doubled = next((path for path in paths if last and path.partition("/")[0] == last), None)
        if doubled is not None:
            yield Warning(
                f"mcp_django.urls is included under {prefix!r} and serves {doubled!r} below it, so the path of the "
                f"endpoint is /{prefix}{doubled}.",
                hint='Include it with path("", include("mcp_django.urls")); its path is PATH in MCP["SERVERS"].',
                id="mcp_django.W008",
            )


@register_check(Tags.security)
def check_oauth_registration() -> Iterator[CheckMessage]:
    """Check that users cannot register OAuth clients where OAuth decides about access."""
    verifiers = [name for name in conf.get_settings().auth if name not in AUTH_NAMES]
    if not verifiers and not apps.is_installed("mcp_django.contrib.oauth"):
        return

    for prefix, resolver in _iter_included(TOOLKIT_APP_NAME):
        names = {pattern.name for pattern in resolver.url_patterns if isinstance(pattern, URLPattern)}
        if names >= REGISTRATION_VIEW_NAMES:
            yield Warning(
                f"oauth2_provider.urls is included whole under {prefix!r}: any logged-in user may register an OAuth "
                "client there, even a confidential one with the client credentials grant.",
                hint="Include oauth2_provider.urls.base_urlpatterns instead, and register clients in the admin.",
                id="mcp_django.W007",
            )


@register_check(Tags.compatibility, deploy=True, reads_settings=False)
def check_middleware() -> Iterator[CheckMessage]:
    """Check that MIDDLEWARE is async.

    Under ASGI sync middleware keeps a thread during each call.
    """
    if not is_served_over_asgi() or next(_iter_included(APP_NAME), None) is None:
        return
    blocking = [path for path, found in middleware() if not getattr(found, "async_capable", False)]
    if not blocking:
        return
    yield Info(
        f"MIDDLEWARE has sync middleware: {', '.join(blocking)}. Each call of the Django view keeps "
        "a thread for as long as it runs.",
        hint="mcp_django.asgi.mount serves the endpoint without Django's MIDDLEWARE.",
        id="mcp_django.I002",
    )


def _iter_included(app_name: str) -> Iterator[tuple[str, URLResolver]]:
    """Yield the route and the resolver of each include with this `app_name`.

    Yields none for an invalid URLconf, which Django reports.
    """
    try:
        yield from [found for found in _iter_resolvers("", get_resolver()) if found[1].app_name == app_name]
    except Exception:
        return


def _iter_resolvers(prefix: str, resolver: URLResolver) -> Iterator[tuple[str, URLResolver]]:
    for pattern in resolver.url_patterns:
        if isinstance(pattern, URLResolver):
            route = prefix + str(pattern.pattern)
            yield route, pattern
            yield from _iter_resolvers(route, pattern)
