"""The services of this process, built at first use and dropped when a setting changes.

The two functions `_build_process` and `_build_services` are the table of all services. Their order is the order of
dependence.
"""

import asyncio
import threading
from collections.abc import Sequence
from typing import Final

from mcp_django import conf
from mcp_django.aio.loop_local import LoopLocal
from mcp_django.auth.authentication import principal_cache
from mcp_django.auth.authentication.authenticator import Authenticator
from mcp_django.auth.authentication.principal_cache import SharedPrincipalCache
from mcp_django.auth.authentication.tickets import MAX_TICKET_CHARS, SocketTickets
from mcp_django.auth.authorization.rule_cache import RULE_CACHE
from mcp_django.auth.principal import PERMISSION_CACHE_SECONDS, invalidate_permissions
from mcp_django.auth.protected.registry import ResourceRegistry
from mcp_django.auth.resource import ProtectedResource
from mcp_django.conf.options import Limits, Settings
from mcp_django.runtime.calls.background import LimitedBackgroundSlots
from mcp_django.runtime.calls.idempotency import DatabaseIdempotencyStore
from mcp_django.runtime.concurrency import StreamLimiter, WaitLimiter
from mcp_django.runtime.events.channel_layer import find_channel_layer
from mcp_django.runtime.events.list_changes import ListChangeDetector
from mcp_django.runtime.events.publisher import EventPublisher
from mcp_django.runtime.readiness import DatabaseReadiness
from mcp_django.runtime.sealing import NameSigner, TokenSealer
from mcp_django.runtime.shutdown import Lifecycle
from mcp_django.runtime.streams.call_streams import CallStreamRegistry
from mcp_django.runtime.streams.event_ids import EventIdCodec
from mcp_django.runtime.streams.sse_messages import SSEMessageRouter
from mcp_django.runtime.threads.executor import LeasingExecutor
from mcp_django.runtime.url_elicitation import SealedElicitationPages
from mcp_django.server.calls.server_ports import Ports
from mcp_django.server.server import Server
from mcp_django.signals import server_drained
from mcp_django.wiring.authentication import build_authenticator, build_resource_authenticator
from mcp_django.wiring.principal_invalidation import PrincipalInvalidation
from mcp_django.wiring.servers import build_ports, build_server
from mcp_django.wiring.services import ProcessServices, Services

LOG_THREADS = 2
"""Number of threads: one may wait for its turn to append while the other reads."""


class _CurrentServices:
    """Holder of the current services."""

    services: Services | None = None


_CURRENT: Final = _CurrentServices()
_BUILD_LOCK: Final = threading.Lock()


def get_services() -> Services:
    """Return the services of this process under its current settings.

    Raises:
        ImproperlyConfigured: the settings are invalid.
    """
    services = _CURRENT.services
    if services is None:
        with _BUILD_LOCK:
            services = _CURRENT.services
            if services is None:
                services = _CURRENT.services = _build_services(conf.get_settings(), PROCESS)
    return services


def drop_services() -> None:
    """Drop the services, servers and endpoints; they are built again at their next use."""
    _CURRENT.services = None


def _build_process() -> ProcessServices:
    limits = Limits()  # the defaults, until valid settings are read
    # Separate from the threads of calls, where it would wait for handlers that wait for the log. Calls without a thread
    # need the rules as well.
    log_executor = LeasingExecutor(max_threads=LOG_THREADS, interrupts_sql=False, name="mcp-log")
    lifecycle = Lifecycle(close_threads=close_threads, grace_seconds=limits.shutdown_grace)
    event_publisher = EventPublisher(
        executor=log_executor,
        retention_seconds=limits.event_ttl,
        create_detector=lambda publisher: ListChangeDetector(
            publisher.publish,
            get_server=get_server,
            clear_permission_caches=_invalidate_rights,
            settle_seconds=PERMISSION_CACHE_SECONDS,
        ),
    )
    return ProcessServices(
        lifecycle=lifecycle,
        log_executor=log_executor,
        event_publisher=event_publisher,
        call_streams=CallStreamRegistry(event_publisher, lifecycle),
        sse_message_routers=LoopLocal(lambda: SSEMessageRouter(event_publisher, log_executor)),
        principal_invalidation=PrincipalInvalidation(event_publisher),
    )


def _build_services(settings: Settings, process: ProcessServices) -> Services:
    limits, keys = settings.limits, conf.secret_keys()
    publisher, log_executor = process.event_publisher, process.log_executor
    process.lifecycle.grace_seconds = limits.shutdown_grace
    publisher.configure(layer=find_channel_layer(settings.channel_layer), retention_seconds=limits.event_ttl)

    executor = LeasingExecutor(
        max_threads=limits.threads,
        max_queued=limits.thread_queue,
        max_blocked=limits.waiting_threads,
        interrupts_sql=settings.interrupt_sql,
    )
    # An entry of the shared cache is cached here for as long again, so each place gets half of the setting.
    has_shared_cache = settings.token_cache is not None and settings.token_cache_seconds > 0
    cache_seconds = settings.token_cache_seconds / (2 if has_shared_cache else 1)
    return Services(
        settings=settings,
        process=process,
        executor=executor,
        background_slots=LimitedBackgroundSlots(limits.background),
        stream_limiter=StreamLimiter(limits.max_streams, limits.max_streams_per_owner),
        wait_limiter=WaitLimiter(limits.wsgi_waits, limits.wsgi_waits_per_owner),
        database_readiness=DatabaseReadiness(log_executor),
        event_ids=EventIdCodec(NameSigner(keys, purpose="event")),
        elicitation_pages=SealedElicitationPages(keys, executor=log_executor, publisher=publisher),
        resource_registry=ResourceRegistry(settings.servers, origin=conf.origin(), issuers=conf.issuers()),
        socket_tickets=SocketTickets(
            TokenSealer(keys, purpose="ticket", max_token_bytes=MAX_TICKET_CHARS),
            DatabaseIdempotencyStore(executor, background_executor=log_executor),
        ),
        shared_principal_cache=SharedPrincipalCache(settings.token_cache, cache_seconds, secret=keys[0])
        if settings.token_cache is not None and has_shared_cache
        else None,
        principal_cache_seconds=cache_seconds,
    )


def get_server(alias: str = "default") -> Server:
    """Return the server of an alias, with autodiscovered primitives.

    Raises:
        ImproperlyConfigured: unknown alias.
    """
    return get_services().get_or_build(build_server, alias)


def get_ports(alias: str = "default") -> Ports:
    """Return the ports that connect a server to Django."""
    return get_services().get_or_build(build_ports, alias)


def list_aliases() -> Sequence[str]:
    """Return the aliases of `MCP["SERVERS"]`, the default one first."""
    return sorted(conf.get_settings().servers, key=lambda alias: (alias != "default", alias))


def create_authenticator(alias: str) -> Authenticator:
    """Create an authenticator of a server from `MCP["AUTH"]`."""
    return build_authenticator(get_services(), alias)


def create_resource_authenticator(resource: ProtectedResource) -> Authenticator:
    """Create an authenticator for another API, with tokens for `resource`."""
    return build_resource_authenticator(get_services(), resource)


def close_threads(loop: asyncio.AbstractEventLoop) -> None:
    """Close the threads and connections of a loop during shutdown."""
    server_drained.send_robust(sender=None)
    PROCESS.event_publisher.close_follower(loop)
    PROCESS.log_executor.close(loop)
    services = _CURRENT.services
    if services is not None:
        services.executor.close(loop)


def _invalidate_rights() -> None:
    """Invalidate cached permissions of users and rules of the admin."""
    invalidate_permissions()
    RULE_CACHE.invalidate()


def _publish_principal_invalidation(owner: str | None, using: str) -> None:
    if conf.auth_names() in ((), ("none",)):
        return  # only the local user is cached, for seconds
    services = get_services()
    services.process.principal_invalidation.publish(owner, using, services.shared_principal_cache)


PROCESS: Final = _build_process()
"""Services of this process that do not need valid settings."""
principal_cache.add_publisher(_publish_principal_invalidation)
conf.on_any_change(drop_services)
