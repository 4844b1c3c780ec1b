"""Servers of `MCP["SERVERS"]` and their ports."""

import contextlib
import difflib
import functools
import threading
from collections.abc import Iterator, Sequence
from dataclasses import fields
from typing import Any, TypeVar

from django.conf import settings as django_settings
from django.core.exceptions import ImproperlyConfigured
from django.middleware.locale import LocaleMiddleware
from django.utils.module_loading import import_string

from mcp_django import conf
from mcp_django.auth.protected.registry import ResourceRegistry
from mcp_django.auth.requests import AuthRequest, find_client_address
from mcp_django.conf.options import ServerSettings
from mcp_django.conf.project import middleware
from mcp_django.exceptions import translate
from mcp_django.forms.questions import get_form_question_factory
from mcp_django.orm.generic import GenericTools
from mcp_django.protocol.log_text import get_logger
from mcp_django.protocol.revisions import Era
from mcp_django.protocol.types import Implementation
from mcp_django.providers.stored import StoredProvider
from mcp_django.runtime.calls.idempotency import DatabaseIdempotencyStore
from mcp_django.runtime.calls.metrics import create_call_metrics
from mcp_django.runtime.calls.observer import SignalCallObserver
from mcp_django.runtime.calls.pending_requests import EventLogPendingRequests
from mcp_django.runtime.calls.tracing import create_tracer
from mcp_django.runtime.database_failures import report_database_failure
from mcp_django.runtime.sealing import NameSigner, TokenSealer
from mcp_django.runtime.sessions.list_digests import DatabaseListDigestStore
from mcp_django.runtime.sessions.store import DatabaseSessionStore
from mcp_django.runtime.subscriptions import EventLogChangeFeed
from mcp_django.server.calls.call import Connection
from mcp_django.server.calls.server_ports import Ports
from mcp_django.server.composition.extension import Extension
from mcp_django.server.composition.provider import Provider, sort_providers
from mcp_django.server.options import ConversationLimits, ServerOptions
from mcp_django.server.primitives.registry import get_registry
from mcp_django.server.server import Server
from mcp_django.wiring import composition
from mcp_django.wiring.authorization import build_policy
from mcp_django.wiring.services import Services

MAX_STATE_BYTES = 64 * 1024
"""Maximum bytes of a sealed `requestState`, which carries a conversation between rounds."""
T = TypeVar("T")
logger = get_logger("mcp_django.auth")


def build_server(services: Services, alias: str) -> Server:
    """Build the server of an alias, with autodiscovered primitives.

    Raises:
        ImproperlyConfigured: unknown alias.
    """
    settings = services.settings
    described = settings.servers.get(alias)
    if described is None:
        suggestions = difflib.get_close_matches(alias, settings.servers, n=1)
        hint = f'; did you mean "{suggestions[0]}"?' if suggestions else ""
        raise ImproperlyConfigured(f'MCP["SERVERS"] has no server "{alias}"{hint}')

    with _detect_mount_cycle(alias):
        mounts = composition.build_mounts(
            services, alias, described, lambda other: services.get_or_build(build_server, other)
        )
    info = Implementation(
        described.name,
        described.version,
        title=described.title,
        description=described.description,
        icons=described.icons,
        website_url=described.website_url,
    )

    shared_options = _get_shared_options(ServerOptions, described) | _get_shared_options(ServerOptions, settings.limits)
    shared_options["around"] = tuple(import_string(path) for path in described.around)
    options = ServerOptions(
        **shared_options,
        atomic=conf.atomic_databases(),
        private_lists=conf.auth_names() not in ((), ("none",)),
        expose_errors=settings.expose_internal_errors and django_settings.DEBUG,
        conversation_limits=ConversationLimits(**_get_shared_options(ConversationLimits, settings.limits)),
    )

    server = Server(
        info,
        alias=alias,
        instructions=described.instructions,
        eras=tuple(Era(name) for name in described.eras),
        registry=get_registry(alias),
        providers=(*_build_providers(alias, described), *composition.build_proxies(alias, described)),
        mounts=mounts,
        extensions=[import_extension(path) for path in described.extensions],
        middleware=[import_string(path) for path in described.middleware],
        lifespan=import_string(described.lifespan) if described.lifespan else None,
        options=options,
        ports=services.get_or_build(build_ports, alias),
    )
    if described.stored:
        # Stored prompts and resources come last, after everything of the project and its mounts.
        server.providers = sort_providers((*server.providers, StoredProvider(alias)))
    return server


@contextlib.contextmanager
def _detect_mount_cycle(alias: str) -> Iterator[None]:
    """Detect cycles of mounts.

    Raises ImproperlyConfigured for a server that is mounted in itself.
    """
    outer_aliases: tuple[str, ...] = getattr(_servers_in_creation, "aliases", ())
    if alias in outer_aliases:
        cycle = " → ".join((*outer_aliases[outer_aliases.index(alias) :], alias))
        raise ImproperlyConfigured(f"the mounts form a cycle: {cycle}")
    _servers_in_creation.aliases = (*outer_aliases, alias)
    try:
        yield
    finally:
        _servers_in_creation.aliases = outer_aliases


_servers_in_creation = threading.local()
"""Aliases of the servers that this thread is creating, outermost first."""


def _build_providers(alias: str, described: ServerSettings) -> list[Provider]:
    """Build the providers: generic model tools, and those of the settings."""
    generic: list[Provider] = [GenericTools(get_registry(alias))] if conf.orm_style(alias) == "generic" else []
    return [*generic, *map(_import_provider, described.providers)]


def build_ports(services: Services, alias: str) -> Ports:
    """Build the ports that connect a server to Django."""
    limits, keys, executor = services.settings.limits, conf.secret_keys(), services.executor
    publisher = services.event_publisher
    return Ports(
        authorizer=build_policy(services, alias),
        executor=executor,
        sessions=DatabaseSessionStore(executor, server=alias, publisher=publisher),
        state_sealer=TokenSealer(keys, purpose="state", max_token_bytes=MAX_STATE_BYTES),
        cursor_sealer=TokenSealer(keys, purpose="cursor"),
        idempotency_store=DatabaseIdempotencyStore(executor, background_executor=services.log_executor),
        pending_requests=EventLogPendingRequests(
            publisher,
            NameSigner(keys, purpose="question"),
            timeout=limits.elicitation_timeout,
            get_time=publisher.clock.time,
        ),
        translate_exception=translate,
        report_unavailability=report_database_failure,
        observer=SignalCallObserver(executor, create_tracer(find_client_address), create_call_metrics()),
        background=services.background_slots,
        add_shutdown_callback=services.lifecycle.add_cleanup,
        change_feed=EventLogChangeFeed(
            alias,
            publisher=publisher,
            executor=executor,
            limiter=services.stream_limiter,
            max_subscriptions=limits.subscriptions,
        ),
        list_digests=DatabaseListDigestStore(executor),
        resolve_form=get_form_question_factory,
        elicitation_pages=services.elicitation_pages,
        required_scopes=functools.partial(_get_required_scopes, services.resource_registry, alias),
    )


def _get_required_scopes(resources: ResourceRegistry, alias: str, connection: Connection) -> Sequence[str]:
    """Return the scopes that a server requires of a caller.

    The result is empty if they cannot be computed.
    """
    request = AuthRequest.from_connection(connection)
    try:
        return resources.get(alias, request).scopes
    except Exception:
        # REQUIRED_SCOPES can be a function of the project. The caller is already authenticated, and still gets the
        # scopes of the operation.
        logger.exception("Computing the required scopes of server %r failed", alias)
        return ()


def negotiates_language() -> bool:
    """Return True if the project uses LocaleMiddleware to select the language."""
    if not django_settings.USE_I18N:
        return False
    return any(isinstance(found, type) and issubclass(found, LocaleMiddleware) for _, found in middleware())


def _get_shared_options(options: type[Any], settings: object) -> dict[str, Any]:
    """Return the settings whose names are those of options of the engine."""
    names = (option.name for option in fields(options))
    return {name: getattr(settings, name) for name in names if hasattr(settings, name)}


def _import_provider(path: str) -> Provider:
    return _import_instance(path, Provider, "a provider; name a mcp_django.providers.Provider")


def import_extension(path: str) -> Extension:
    """Return the extension of a dotted path. Raises ImportError, ImproperlyConfigured."""
    return _import_instance(path, Extension, "an extension; name a mcp_django.extensions.Extension")


def _import_instance(path: str, kind: type[T], expected: str) -> T:
    found: Any = import_string(path)
    if not isinstance(found, kind) and callable(found):
        found = found()
    if not isinstance(found, kind):
        raise ImproperlyConfigured(f"{path} is not {expected}, or a function that returns one")
    return found
