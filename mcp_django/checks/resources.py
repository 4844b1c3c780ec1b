"""System checks of protected resources: URLs, sessions, caches and scopes."""

from collections.abc import Iterator, Sequence
from typing import Any

from django.core.checks import CheckMessage, Error, Tags, Warning

from mcp_django import conf
from mcp_django.auth.resource import canonicalize_url
from mcp_django.checks.installation import register_check
from mcp_django.conf.options import ServerSettings
from mcp_django.conf.project import cache_backend, middleware
from mcp_django.server.primitives import registry
from mcp_django.server.primitives.base import Primitive

SESSION_MIDDLEWARE = "django.contrib.sessions.middleware.SessionMiddleware"


@register_check(Tags.security)
def check_sessions() -> Iterator[CheckMessage]:
    """Check that users can log in to the site if AUTH names "session"."""
    if "session" not in conf.auth_names():
        return
    if any(
        path == SESSION_MIDDLEWARE or "SessionMiddleware" in _get_class_names(found) for path, found in middleware()
    ):
        return
    yield Error(
        f'MCP["AUTH"] names "session", but MIDDLEWARE lacks {SESSION_MIDDLEWARE}, so users cannot log in.',
        hint='Add it, with AuthenticationMiddleware after it, or remove "session" from MCP["AUTH"].',
        id="mcp_django.E042",
    )


@register_check(Tags.security)
def check_resources() -> Iterator[CheckMessage]:
    """Check that each server has a unique resource URL, which tokens are issued for."""
    taken: dict[str, str] = {}
    for alias, server in conf.get_settings().servers.items():
        if server.resource is None:
            continue

        where, uri = f'MCP["SERVERS"]["{alias}"]["RESOURCE"]', canonicalize_url(server.resource)
        if uri is None:
            yield Error(
                f"{where} is {server.resource!r}, which is invalid as a resource, so no token of an authorization "
                "server is accepted.",
                hint="Use scheme, host and path only, without percent signs and empty or dotted segments.",
                id="mcp_django.E043",
            )
        elif uri in taken:
            yield Error(
                f'{where} is also the one of "{taken[uri]}": tokens for one server would be valid at the other.',
                hint="Give each server a unique URL.",
                id="mcp_django.E043",
            )
        else:
            taken[uri] = alias


@register_check(Tags.caches)
def check_named_caches() -> Iterator[CheckMessage]:
    """Check that the shared caches exist."""
    settings = conf.get_settings()
    named = [('MCP["TOKEN_CACHE"]', settings.token_cache), ('MCP["RATES"]["CACHE"]', settings.rates.cache)]
    for where, alias in named:
        if alias not in (None, "default") and cache_backend(str(alias)) is None:
            yield Error(
                f"{where} names {alias!r}, which is not in CACHES.",
                hint="Use an alias of CACHES, or remove the option.",
                id="mcp_django.E044",
            )


@register_check(Tags.security)
def check_scopes() -> Iterator[CheckMessage]:
    """Check that all scopes are declared.

    An undeclared scope is misspelt, and clients cannot request it.
    """
    if not conf.get_settings().scopes:
        return
    declared = conf.get_settings().scopes
    for where, scope in dict.fromkeys(_iter_named_scopes()):
        if scope not in declared:
            yield Warning(
                f'{where} names the scope {scope!r}, which MCP["SCOPES"] does not declare, so clients cannot '
                "request it.",
                hint="Declare it there, with a description.",
                id="mcp_django.W043",
            )


def _iter_named_scopes() -> Iterator[tuple[str, str]]:
    settings = conf.get_settings()
    yield from (('MCP["SESSION_SCOPES"]', scope) for scope in settings.session_scopes)
    for scope, implied in settings.scope_implies.items():
        yield from (('MCP["SCOPE_IMPLIES"]', name) for name in (scope, *implied))
    for alias, server in settings.servers.items():
        yield from ((f'MCP["SERVERS"]["{alias}"]["REQUIRED_SCOPES"]', scope) for scope in _get_required_scopes(server))
    for issuer in settings.issuers:
        mapped = (issuer.scopes or {}).values()
        yield from ((f"SCOPES of {issuer.issuer}", scope) for scopes in mapped for scope in scopes)
    for declared in registry.REGISTRIES.values():
        yield from (
            (item.source, scope) for item in declared.iter_all() if isinstance(item, Primitive) for scope in item.scopes
        )


def _get_required_scopes(server: ServerSettings) -> Sequence[str]:
    return () if isinstance(server.required_scopes, str) else server.required_scopes


def _get_class_names(found: Any) -> list[str]:
    return [base.__name__ for base in getattr(found, "__mro__", ())]
