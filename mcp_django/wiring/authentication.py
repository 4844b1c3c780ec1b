"""Authentication of each server, built from `MCP["AUTH"]`."""

import functools
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from types import MappingProxyType
from typing import Any, Final

from django.conf import settings as django_settings
from django.core.exceptions import ImproperlyConfigured
from django.utils.module_loading import import_string

from mcp_django import conf
from mcp_django.auth.authentication.authenticator import Authenticator
from mcp_django.auth.authentication.session import SessionAuthenticator
from mcp_django.auth.authentication.verifiers import Verifier, build_verifier
from mcp_django.auth.external.verifier import ExternalVerifier
from mcp_django.auth.resource import ProtectedResource
from mcp_django.wiring.authorization import build_scope_filter
from mcp_django.wiring.services import Services

VERIFIER_FACTORIES: Final[Mapping[str, str]] = MappingProxyType(
    {
        "token": "mcp_django.auth.authentication.verifiers.PersonalTokenVerifier",
        "oauth": "mcp_django.contrib.oauth.tokens.access_tokens.verifier",
    }
)
"""Factories of the verifiers named in `MCP["AUTH"]`; `build_external_verifier` is that of "external".

Each returns one verifier or a list.
"""
REQUIRED_PACKAGES: Final = ("httpx", "jwcrypto")
"""Packages of the extra `external`."""


def build_authenticator(services: Services, alias: str) -> Authenticator:
    """Build the authenticator of a server from `MCP["AUTH"]`."""
    settings = services.settings
    names = conf.auth_names()
    is_development = not names and django_settings.DEBUG
    # Without `AUTH`, development serves local clients and bearers of tokens.
    verifier_names = ("token",) if is_development else tuple(name for name in names if name not in ("none", "session"))

    return Authenticator(
        alias,
        executor=services.executor,
        sessions=SessionAuthenticator(frozenset(settings.session_scopes), executor=services.executor)
        if "session" in names
        else None,
        tickets=services.socket_tickets if verifier_names or "session" in names else None,
        resolve_resource=functools.partial(services.resource_registry.get, alias),
        varies_by_request=services.resource_registry.varies_by_request(alias),
        verifiers=_build_verifiers(services, verifier_names),
        local=is_development or names == ("none",),
        local_user=settings.local_user,
        cache_seconds=services.principal_cache_seconds,
        scope_filter=build_scope_filter(services, alias),
        shared_cache=services.shared_principal_cache,
        follow_invalidations=services.process.principal_invalidation.topic.keep_subscribed
        if verifier_names and settings.token_cache_seconds
        else None,
    )


def build_resource_authenticator(services: Services, resource: ProtectedResource) -> Authenticator:
    """Build an authenticator for another API, with tokens for `resource`."""
    return Authenticator(
        resource.server,
        executor=services.executor,
        resolve_resource=lambda request: resource,
        verifiers=_build_verifiers(services, [name for name in conf.auth_names() if name not in ("none", "session")]),
        cache_seconds=services.principal_cache_seconds,
        scope_filter=build_scope_filter(services, resource.server),
        shared_cache=services.shared_principal_cache,
    )


def _build_verifiers(services: Services, names: Sequence[str]) -> list[Verifier]:
    return [verifier for name in names for verifier in _build_named_verifiers(services, name)]


def _build_named_verifiers(services: Services, name: str) -> Sequence[Verifier]:
    if name != "external" and name not in VERIFIER_FACTORIES:
        return [build_verifier(import_string(name))]
    try:
        # All servers share the external verifier, and thereby its caches.
        is_external = name == "external"
        found: Any = (
            services.get_or_build(build_external_verifier) if is_external else import_string(VERIFIER_FACTORIES[name])()
        )
    except ImportError as problem:
        message = f'MCP["AUTH"] contains "{name}", which is unavailable: {problem}'
        raise ImproperlyConfigured(message) from problem
    return [build_verifier(verifier) for verifier in (found if isinstance(found, list | tuple) else [found])]


def build_external_verifier(services: Services) -> ExternalVerifier:
    """Build the verifier of all issuers. Raises ImportError."""
    missing = [name for name in REQUIRED_PACKAGES if find_spec(name) is None]
    if missing:
        raise ImportError(f"{' and '.join(missing)} must be installed: pip install 'mcp-django-channels[external]'")
    return ExternalVerifier(services.settings.issuers)
