"""Resources that tokens are issued for (RFC 8707): the project's endpoints by canonical URL."""

from collections.abc import Iterable
from typing import Any
from urllib.parse import urlsplit

from django.urls import Resolver404
from django.urls import resolve as resolve_path

from mcp_django.auth.protected.registry import APP_NAME
from mcp_django.auth.requests import AuthRequest
from mcp_django.auth.resource import ProtectedResource, canonicalize_url
from mcp_django.protocol.headers import Headers
from mcp_django.wiring import get_services

__all__ = ["UnknownTarget", "canonicalize_url", "filter_allowed", "find_resource", "resolve_resources"]

MAX_RESOURCES = 10
"""Maximum number of resources of one token."""


class UnknownTarget(Exception):
    """Error `invalid_target` of RFC 8707, section 2.

    The resource is unknown, not allowed for the client, or missing where several exist. The text may be sent to the
    client.
    """


def resolve_resources(requested: Iterable[object], application: Any) -> list[str]:
    """Return the distinct canonical URLs of the requested resources.

    Without a request, the only resource that the client may use is returned.

    Raises:
        UnknownTarget: an unknown, forbidden or missing resource.
    """
    allowed = _get_allowed_uris(application)
    urls = list(requested)

    if not urls:
        uris = [resource.uri for resource in get_services().resource_registry.iter_static_resources()]
        defaults = filter_allowed(application, dict.fromkeys(uri for uri in uris if uri is not None))
        if len(defaults) != 1:
            raise UnknownTarget("The parameter `resource` is missing; it names the server that the token is for")
        return defaults
    if len(urls) > MAX_RESOURCES:
        raise UnknownTarget("Too many resources were requested")

    found: dict[str, None] = {}
    for url in urls:
        resource = find_resource(url)
        if resource is None or resource.uri is None or (allowed is not None and resource.uri not in allowed):
            raise UnknownTarget("The resource is unknown or not allowed for this client")
        found[resource.uri] = None
    return list(found)


def find_resource(url: object) -> ProtectedResource | None:
    """Return the endpoint of a URL in any equivalent spelling; None if unknown."""
    uri = canonicalize_url(url)
    if uri is None:
        return None
    static_resources = get_services().resource_registry.iter_static_resources()
    return next((resource for resource in static_resources if resource.uri == uri), None) or _find_by_path(uri)


def filter_allowed(application: Any, resources: Iterable[str]) -> list[str]:
    """Return those of the canonical URLs that an operator allows the client."""
    allowed = _get_allowed_uris(application)
    return [uri for uri in resources if allowed is None or uri in allowed]


def _find_by_path(uri: str) -> ProtectedResource | None:
    """Return the endpoint whose path parameters match the URL."""
    registry = get_services().resource_registry
    try:
        match = resolve_path(urlsplit(uri).path)
    except Resolver404:
        return None
    if match.app_names != [APP_NAME] or match.url_name is None or match.url_name not in registry.aliases:
        return None
    resource = registry.get(match.url_name, AuthRequest(Headers(), kwargs=match.kwargs))
    return resource if resource.uri == uri else None


def _get_allowed_uris(application: Any) -> set[str | None] | None:
    """Return the resources that an operator allows the client; None means no limit."""
    profile = getattr(application, "mcp_profile", None)
    if profile is None or profile.allowed_resources is None:
        return None
    return {canonicalize_url(one) for one in profile.allowed_resources}
