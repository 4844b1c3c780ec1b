"""What tokens are made for: the project's own endpoints, each under its one name, and nothing else (RFC 8707)."""

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
"""Resources of one token."""


class UnknownTarget(Exception):
    """`invalid_target` of RFC 8707, section 2: no such resource, not for this client, or none is named where there are
    several. The text may be sent.
    """


def resolve(asked: Iterable[object], application: Any) -> list[str]:
    """The canonical URLs of the resources that a client asks for, each once. Without a word on it, the only resource
    there is for the client. Raises UnknownTarget.
    """
    allowed = _allowed(application)
    named = list(asked)
    if not named:
        found = [uri for uri in _fixed() if allowed is None or uri in allowed]
        if len(found) != 1:
            raise UnknownTarget("Say by `resource` which server the token is for")
        return found
    if len(named) > MOST:
        raise UnknownTarget("These are too many resources")
    uris: dict[str, None] = {}
    for one in named:
        resource = find(one)
        if resource is None or resource.uri is None or (allowed is not None and resource.uri not in allowed):
            raise UnknownTarget("There is no such resource for this client")
        uris[resource.uri] = None
    return list(uris)


def find(url: object) -> ProtectedResource | None:
    """The endpoint of a URL in any spelling of it; None for anything else."""
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
    """The resources that are the same for every request."""
    registry = resources()
    found = [registry.of(alias).uri for alias in registry.aliases if not registry.varies(alias)]
    return list(dict.fromkeys(uri for uri in found if uri is not None))


def _of_path(uri: str) -> ProtectedResource | None:
    """An endpoint whose path has parameters, by those in the URL."""
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
    """The resources that an operator limits the client to; None for no limit."""
    profile = getattr(application, "mcp_profile", None)
    if profile is None or profile.allowed_resources is None:
        return None
    return {canonical(one) for one in profile.allowed_resources}
