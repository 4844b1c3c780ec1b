"""Is the endpoint where it should be in the URLconf, and what stands before and beside it?"""

from collections.abc import Iterator, Sequence
from typing import Any

from django.apps import apps
from django.core.checks import CheckMessage, Info, Tags, Warning, register
from django.urls import URLPattern, URLResolver, get_resolver

from mcp_django import conf
from mcp_django.conf.project import middleware, serves_asgi
from mcp_django.conf.readers import AUTH_NAMES

OURS, TOOLKIT = "mcp_django", "oauth2_provider"
REGISTRATION = {"list", "register"}
"""Names of the views in which whoever logs in may register an OAuth client (oauth2_provider.urls,
management_urlpatterns).
"""


@register(Tags.urls)
def check_doubled_path(app_configs: Sequence[Any] | None, **kwargs: Any) -> list[CheckMessage]:
    """`mcp_django.urls` brings its path along."""
    if not conf.is_usable():
        return []
    paths = [server.path for server in conf.get_settings().servers.values()]
    found: list[CheckMessage] = []
    for prefix, _ in _included(OURS):
        last = prefix.strip("/").rpartition("/")[2]
        doubled = next((path for path in paths if last and path.partition("/")[0] == last), None)
        if doubled is not None:
            found.append(
                Warning(
                    f"mcp_django.urls is included under {prefix!r} and serves {doubled!r} below it, so clients have to "
                    f"know it as /{prefix}{doubled}.",
                    hint='Include it with path("", include("mcp_django.urls")); its path is PATH in MCP["SERVERS"].',
                    id="mcp_django.W008",
                )
            )
    return found


@register(Tags.security)
def check_oauth_registration(app_configs: Sequence[Any] | None, **kwargs: Any) -> list[CheckMessage]:
    """Where OAuth decides who may call, not everybody may make clients."""
    if not conf.is_usable():
        return []
    verifiers = [name for name in conf.get_settings().auth if name not in AUTH_NAMES]
    if not verifiers and not apps.is_installed("mcp_django.contrib.oauth"):
        return []
    return [
        Warning(
            f"oauth2_provider.urls is included whole under {prefix!r}: whoever can log in may register an OAuth client "
            "there, a confidential one with the client credentials grant included.",
            hint="Include oauth2_provider.urls.base_urlpatterns in its place, and register clients in the admin.",
            id="mcp_django.W007",
        )
        for prefix, resolver in _included(TOOLKIT)
        if {pattern.name for pattern in resolver.url_patterns if isinstance(pattern, URLPattern)} >= REGISTRATION
    ]


@register(Tags.compatibility, deploy=True)
def check_middleware(app_configs: Sequence[Any] | None, **kwargs: Any) -> list[CheckMessage]:
    """Under ASGI middleware that knows no async keeps a thread while the view works, which may be long."""
    if not serves_asgi() or next(_included(OURS), None) is None:
        return []
    blocking = [path for path, found in middleware() if not getattr(found, "async_capable", False)]
    if not blocking:
        return []
    return [
        Info(
            f"MIDDLEWARE has what cannot run asynchronously: {', '.join(blocking)}. Each call to the Django view keeps "
            "a thread because of it, for as long as it runs.",
            hint="mcp_django.asgi.mount serves the endpoint beside Django, without MIDDLEWARE.",
            id="mcp_django.I002",
        )
    ]


def _included(app_name: str) -> Iterator[tuple[str, URLResolver]]:
    """Where a URLconf with this `app_name` is included: the route before it, and itself. None in a URLconf that is
    broken, which Django reports.
    """
    try:
        yield from [found for found in _below("", get_resolver()) if found[1].app_name == app_name]
    except Exception:
        return


def _below(prefix: str, resolver: URLResolver) -> Iterator[tuple[str, URLResolver]]:
    for pattern in resolver.url_patterns:
        if isinstance(pattern, URLResolver):
            route = prefix + str(pattern.pattern)
            yield route, pattern
            yield from _below(route, pattern)
