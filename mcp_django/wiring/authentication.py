"""Authentication of each server, built from `MCP["AUTH"]`."""

import functools
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from types import MappingProxyType
from typing import Any, Final

from django.core.exceptions import ImproperlyConfigured
from django.utils.module_loading import import_string

from mcp_django import conf
from mcp_django.aio.tasks import BackgroundTasks
from mcp_django.auth.authentication import principal_cache
from mcp_django.auth.authentication.active_principals import ACTIVE_PRINCIPALS
from mcp_django.auth.authentication.authenticator import Authenticator
from mcp_django.auth.authentication.principal_cache import SharedPrincipalCache
from mcp_django.auth.authentication.session import SessionAuthenticator
from mcp_django.auth.authentication.tickets import MAX_TICKET_CHARS, SocketTickets
from mcp_django.auth.authentication.verifiers import Verifier, build_verifier
from mcp_django.auth.authorization.rule_cache import RULE_CACHE
from mcp_django.auth.external.verifier import ExternalVerifier
from mcp_django.auth.protected.registry import ResourceRegistry
from mcp_django.auth.resource import ProtectedResource
from mcp_django.models.commit_hooks import call_on_commit
from mcp_django.protocol.log_text import get_logger
from mcp_django.runtime.calls.idempotency import DatabaseIdempotencyStore
from mcp_django.runtime.events.event_log import Event
from mcp_django.runtime.events.invalidation import InvalidationTopic
from mcp_django.runtime.sealing import TokenSealer
from mcp_django.runtime.sessions.activity import publish_callers
from mcp_django.wiring.authorization import create_scope_filter
from mcp_django.wiring.services import get_event_publisher, get_executor, get_log_executor

logger = get_logger("mcp_django.auth")

PRINCIPALS_TOPIC, INVALIDATE_EVENT = "principals", "forget"
"""Topic and name of events in the event log that invalidate cached principals."""
_reports: Final = BackgroundTasks()
VERIFIER_FACTORIES: Final[Mapping[str, str]] = MappingProxyType(
    {
        "token": "mcp_django.auth.authentication.verifiers.PersonalTokenVerifier",
        "oauth": "mcp_django.contrib.oauth.tokens.access_tokens.verifier",
        "external": "mcp_django.wiring.authentication.create_external_verifiers",
    }
)
"""Factories of the verifiers named in `MCP["AUTH"]`.

Each returns one verifier or a list.
"""


REQUIRED_PACKAGES: Final = ("httpx", "jwcrypto")
"""Packages of the extra `external`."""


def create_authenticator(server: str) -> Authenticator:
    """Create the authenticator of a server from `MCP["AUTH"]`."""
    settings = conf.get_settings()
    names = conf.auth_names()
    is_development = not names and conf.is_debug()
    # Without `AUTH`, development serves local clients and bearers of tokens.
    verifier_names = ("token",) if is_development else tuple(name for name in names if name not in ("none", "session"))

    return Authenticator(
        server,
        executor=get_executor(),
        sessions=SessionAuthenticator(frozenset(settings.session_scopes), executor=get_executor())
        if "session" in names
        else None,
        tickets=get_socket_tickets() if verifier_names or "session" in names else None,
        resolve_resource=functools.partial(get_resource_registry().get, server),
        varies_by_request=get_resource_registry().varies_by_request(server),
        verifiers=[verifier for name in verifier_names for verifier in _create_verifiers(name)],
        local=is_development or names == ("none",),
        local_user=settings.local_user,
        cache_seconds=_get_cache_seconds(),
        scope_filter=create_scope_filter(server),
        shared_cache=get_shared_principal_cache(),
        follow_invalidations=get_invalidation_topic().keep_subscribed
        if verifier_names and settings.token_cache_seconds
        else None,
    )


def create_resource_authenticator(resource: ProtectedResource) -> Authenticator:
    """Create an authenticator for another API, with tokens for `resource`."""
    verifier_names = [name for name in conf.auth_names() if name not in ("none", "session")]
    return Authenticator(
        resource.server,
        executor=get_executor(),
        resolve_resource=lambda request: resource,
        verifiers=[verifier for name in verifier_names for verifier in _create_verifiers(name)],
        cache_seconds=_get_cache_seconds(),
        scope_filter=create_scope_filter(resource.server),
        shared_cache=get_shared_principal_cache(),
    )


@conf.cached("SECRET_KEY", "SECRET_KEY_FALLBACKS", "DATABASES")
def get_socket_tickets() -> SocketTickets:
    """Return the tickets that authenticate WebSockets of pages."""
    return SocketTickets(
        TokenSealer(conf.secret_keys(), purpose="ticket", max_token_bytes=MAX_TICKET_CHARS),
        DatabaseIdempotencyStore(get_executor(), background_executor=get_log_executor()),
    )


@conf.cached("SECRET_KEY")
def get_shared_principal_cache() -> SharedPrincipalCache | None:
    """Return the cache shared with other processes, if the settings name one."""
    settings = conf.get_settings()
    if settings.token_cache is None or not settings.token_cache_seconds:
        return None
    return SharedPrincipalCache(settings.token_cache, _get_cache_seconds(), secret=conf.secret_keys()[0])


def _get_cache_seconds() -> float:
    """Return the seconds for which a principal is cached in one place.

    An entry of the shared cache is cached here for as long again, so each place gets half of the setting.
    """
    settings = conf.get_settings()
    return settings.token_cache_seconds / (1 if settings.token_cache is None else 2)


@functools.cache
def get_invalidation_topic() -> InvalidationTopic:
    """Return the topic of invalidations by other processes.

    It survives changes of settings, because the event log uses it.
    """
    return InvalidationTopic(get_event_publisher, PRINCIPALS_TOPIC, handler=_on_invalidation, is_needed=_report_callers)


def _report_callers() -> bool:
    """Report the callers since the last report; return True if the subscription is still needed."""
    callers = ACTIVE_PRINCIPALS.take()
    if callers:
        topic = get_invalidation_topic()
        _reports.spawn(publish_callers(topic.get_publisher(), topic.sender_id, callers))
    return principal_cache.has_cached_principals()


def _on_invalidation(event: Event) -> None:
    owner = event.payload.get("owner")
    if owner is None:
        RULE_CACHE.invalidate()  # rules affect the permissions of every principal
    principal_cache.invalidate_in_process(
        principal_cache.match_all if owner is None else principal_cache.match_user(owner)
    )


def _publish_invalidation(owner: str | None, using: str) -> None:
    if conf.auth_names() in ((), ("none",)):
        return  # only the local user is cached, for seconds
    shared_cache = get_shared_principal_cache()
    if shared_cache is not None:
        shared_cache.invalidate(owner)
        invalidate = functools.partial(shared_cache.invalidate, owner)
        call_on_commit(
            invalidate, using=using, logger=logger, failure="Failed to discard shared principals after a commit"
        )
    get_event_publisher().publish_on_commit(
        get_invalidation_topic().create_draft(INVALIDATE_EVENT, owner=owner), using=using
    )


principal_cache.add_publisher(_publish_invalidation)


@conf.cached("OAUTH2_PROVIDER", "ROOT_URLCONF", "FORCE_SCRIPT_NAME", "INSTALLED_APPS")
def get_resource_registry() -> ResourceRegistry:
    """Return the registry of protected resources, one for each server."""
    return ResourceRegistry(conf.get_settings().servers, origin=conf.origin(), issuers=conf.issuers())


def _create_verifiers(name: str) -> Sequence[Verifier]:
    path = VERIFIER_FACTORIES.get(name)
    if path is None:
        return [build_verifier(import_string(name))]
    try:
        verifiers: Any = import_string(path)()
    except ImportError as problem:
        message = f'MCP["AUTH"] contains "{name}", which is unavailable: {problem}'
        raise ImproperlyConfigured(message) from problem
    return [
        build_verifier(verifier) for verifier in (verifiers if isinstance(verifiers, list | tuple) else [verifiers])
    ]


def create_external_verifiers() -> Sequence[Verifier]:
    """Return the verifier of all issuers, shared by all servers to share its caches.

    Raises ImportError.
    """
    missing = [name for name in REQUIRED_PACKAGES if find_spec(name) is None]
    if missing:
        raise ImportError(f"{' and '.join(missing)} must be installed: pip install 'mcp-django-channels[external]'")
    return [_get_external_verifier()]


@conf.cached()
def _get_external_verifier() -> ExternalVerifier:
    return ExternalVerifier(conf.get_settings().issuers)
