"""Resources that tokens are issued for (RFC 8707): the project's endpoints by canonical URL."""

from collections.abc import Iterable
from typing import Any
from urllib.parse import urlsplit

from django.urls import Resolver404
from django.urls import resolve as resolve_path

from mcp_django.auth.protected.registry import APP
from mcp_django.auth.requests import AuthRequest
from mcp_django.auth.resource import ProtectedResource, canonical
from mcp_django.protocol.headers import Headers
from mcp_django.wiring.authentication import resources

__all__ = ["UnknownTarget", "canonical", "find", "resolve"]

MOST = 10
"""Maximum number of resources of one token."""


class UnknownTarget(Exception):
    """Error `invalid_target` of RFC 8707, section 2.

    The resource is unknown, not allowed for the client, or missing where several exist. The text may be sent to the
    client.
    """


def resolve(asked: Iterable[object], application: Any) -> list[str]:
    """Return the distinct canonical URLs of the requested resources.

    Without a request, the only resource that the client may use is returned.

    Raises:
        UnknownTarget: an unknown, forbidden or missing resource.
    """
    allowed = _allowed(application)
    named = list(asked)

    if not named:
        found = [uri for uri in _fixed() if allowed is None or uri in allowed]
        if len(found) != 1:
            raise UnknownTarget("The parameter `resource` is missing; it names the server that the token is for")
        return found
    if len(named) > MOST:
        raise UnknownTarget("Too many resources were requested")

    uris: dict[str, None] = {}
    for one in named:
        resource = find(one)
        if resource is None or resource.uri is None or (allowed is not None and resource.uri not in allowed):
            raise UnknownTarget("The resource is unknown or not allowed for this client")
        uris[resource.uri] = None
    return list(uris)


def find(url: object) -> ProtectedResource | None:
    """Return the endpoint of a URL in any equivalent spelling; None if unknown."""
    uri = canonical(url)
    if uri is None:
        return None
    registry = resources()
    for alias in registry.aliases:
        if not registry.varies(alias):
            resource = registry.of(alias)
            if resource.uri == uri:
                return resource
    return _of_path(uri)


def _fixed() -> list[str]:
    """Return the resources that are the same for every request."""
    registry = resources()
    found = [registry.of(alias).uri for alias in registry.aliases if not registry.varies(alias)]
    return list(dict.fromkeys(uri for uri in found if uri is not None))


def _of_path(uri: str) -> ProtectedResource | None:
    """Return the endpoint whose path parameters match the URL."""
    registry = resources()
    try:
        match = resolve_path(urlsplit(uri).path)
    except Resolver404:
        return None
    if match.app_names != [APP] or match.url_name is None or match.url_name not in registry.aliases:
        return None
    resource = registry.of(match.url_name, AuthRequest(Headers(), kwargs=match.kwargs))
    return resource if resource.uri == uri else None


def _allowed(application: Any) -> set[str | None] | None:
    """Return the resources that an operator allows the client; None means no limit."""
    profile = getattr(application, "mcp_profile", None)
    if profile is None or profile.allowed_resources is None:
        return None
    return {canonical(one) for one in profile.allowed_resources}
