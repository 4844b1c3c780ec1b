"""Services shared by all servers: threads, event log, streams, and shutdown."""

import asyncio
import functools

from django.utils.module_loading import import_string

from mcp_django import conf
from mcp_django.aio.loop_local import LoopLocal
from mcp_django.auth.authorization.rule_cache import RULE_CACHE
from mcp_django.auth.principal import PERMISSION_CACHE_SECONDS, invalidate_permissions
from mcp_django.runtime.calls.background import LimitedBackgroundSlots
from mcp_django.runtime.concurrency import StreamLimiter, WaitLimiter
from mcp_django.runtime.events.channel_layer import find_channel_layer
from mcp_django.runtime.events.list_changes import ListChangeDetector
from mcp_django.runtime.events.publisher import EventPublisher
from mcp_django.runtime.readiness import DatabaseReadiness
from mcp_django.runtime.sealing import NameSigner
from mcp_django.runtime.shutdown import Lifecycle
from mcp_django.runtime.streams.call_streams import CallStreamRegistry
from mcp_django.runtime.streams.event_ids import EventIdCodec
from mcp_django.runtime.streams.replay_buffer import ReplayLimits
from mcp_django.runtime.streams.sse_messages import SSEMessageRouter
from mcp_django.runtime.threads.executor import LeasingExecutor
from mcp_django.runtime.url_elicitation import SealedElicitationPages
from mcp_django.server.server import Server
from mcp_django.signals import server_drained

SERVER_SETTINGS = ("SECRET_KEY", "SECRET_KEY_FALLBACKS", "DEBUG", "DATABASES")
"""Names of Django's settings whose change rebuilds servers and their services."""
LOG_THREADS = 2
"""Number of threads: one may wait for its turn to append while the other reads."""


@conf.cached(*SERVER_SETTINGS)
def get_executor() -> LeasingExecutor:
    """Return the thread-pool executor of this process, shared by all servers."""
    settings = conf.get_settings()
    limits = settings.limits
    return LeasingExecutor(
        max_threads=limits.threads,
        max_queued=limits.thread_queue,
        max_blocked=limits.waiting_threads,
        interrupts_sql=settings.interrupt_sql,
    )


@functools.cache
def get_lifecycle() -> Lifecycle:
    """Return the shutdown manager of this process.

    It survives changes of settings, because signal handlers use it.
    """
    return Lifecycle(get_grace_seconds=lambda: conf.get_settings().limits.shutdown_grace, close_threads=_close_services)


def _close_services(loop: asyncio.AbstractEventLoop) -> None:
    """Close the threads and connections of a loop during shutdown."""
    server_drained.send_robust(sender=None)
    get_event_publisher().close_follower(loop)
    get_log_executor().close(loop)
    get_executor().close(loop)


@functools.cache
def get_background_slots() -> LimitedBackgroundSlots:
    """Return the slots for work after the response.

    They survive changes of settings, because running work uses them.
    """
    return LimitedBackgroundSlots(lambda: conf.get_settings().limits.background)


@functools.cache
def get_log_executor() -> LeasingExecutor:
    """Return the executor for the event log and the admin's rules.

    It is separate from the executor of calls, where it would wait for handlers that wait for the log. Calls without a
    thread need the rules as well.
    """
    return LeasingExecutor(max_threads=LOG_THREADS, interrupts_sql=False, name="mcp-log")


def _invalidate_rights() -> None:
    """Invalidate cached permissions of users and rules of the admin."""
    invalidate_permissions()
    RULE_CACHE.invalidate()


@functools.cache
def get_event_publisher() -> EventPublisher:
    """Return the publisher and subscriber of the event log.

    It survives changes of settings, because streams use it.
    """
    return EventPublisher(
        get_executor=get_log_executor,
        get_layer=lambda: find_channel_layer(conf.get_settings().channel_layer),
        get_retention_seconds=lambda: conf.get_settings().limits.event_ttl,
        create_detector=lambda feeds: ListChangeDetector(
            feeds.publish,
            get_server=_get_server,
            get_executor=get_executor,
            clear_permission_caches=_invalidate_rights,
            settle_seconds=PERMISSION_CACHE_SECONDS,
        ),
    )


@conf.cached(*SERVER_SETTINGS)
def get_database_readiness() -> DatabaseReadiness:
    """Return the check of the package's database tables."""
    return DatabaseReadiness(get_log_executor)


@functools.cache
def get_call_streams() -> CallStreamRegistry:
    """Return the resumable call streams of sessions.

    They survive changes of settings, because streams use them.
    """
    return CallStreamRegistry(get_event_publisher(), get_lifecycle(), get_replay_limits)


@functools.cache
def get_sse_message_routers() -> LoopLocal[SSEMessageRouter]:
    """Return the HTTP+SSE streams of this process and the routing to other workers.

    They survive changes of settings, because streams use them.
    """
    return LoopLocal(lambda: SSEMessageRouter(get_event_publisher(), get_log_executor()))


def get_replay_limits() -> ReplayLimits:
    limits = conf.get_settings().limits
    return ReplayLimits(limits.events, limits.send_buffer, limits.send_timeout, limits.event_ttl)


@conf.cached(*SERVER_SETTINGS)
def get_event_id_codec() -> EventIdCodec:
    """Return the codec for event ids on streams of sessions."""
    return EventIdCodec(NameSigner(conf.secret_keys(), purpose="event"))


@conf.cached(*SERVER_SETTINGS)
def get_wait_limiter() -> WaitLimiter:
    """Return the limiter of requests that wait and hold a thread of the server (WSGI), for all servers."""
    limits = conf.get_settings().limits
    return WaitLimiter(limits.wsgi_waits, limits.wsgi_waits_per_owner)


@conf.cached(*SERVER_SETTINGS)
def get_stream_limiter() -> StreamLimiter:
    """Return the limiter of open streams other than calls, for all servers."""
    limits = conf.get_settings().limits
    return StreamLimiter(limits.max_streams, limits.max_streams_per_owner)


@conf.cached(*SERVER_SETTINGS)
def get_elicitation_pages() -> SealedElicitationPages:
    """Return the pages for URL-mode elicitation."""
    return SealedElicitationPages(conf.secret_keys(), get_executor=get_log_executor, get_publisher=get_event_publisher)


def _get_server(alias: str) -> Server:
    # Imported by name, because `servers` imports this module.
    server: Server = import_string(f"{__package__}.servers.get_server")(alias)
    return server
