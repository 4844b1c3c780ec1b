"""Types of the services that all servers of a process share."""

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Concatenate, ParamSpec, TypeVar, cast

from mcp_django.aio.loop_local import LoopLocal
from mcp_django.auth.authentication.principal_cache import SharedPrincipalCache
from mcp_django.auth.authentication.tickets import SocketTickets
from mcp_django.auth.protected.registry import ResourceRegistry
from mcp_django.conf.options import Settings
from mcp_django.runtime.calls.background import LimitedBackgroundSlots
from mcp_django.runtime.concurrency import StreamLimiter, WaitLimiter
from mcp_django.runtime.events.publisher import EventPublisher
from mcp_django.runtime.readiness import DatabaseReadiness
from mcp_django.runtime.shutdown import Lifecycle
from mcp_django.runtime.streams.call_streams import CallStreamRegistry
from mcp_django.runtime.streams.event_ids import EventIdCodec
from mcp_django.runtime.streams.sse_messages import SSEMessageRouter
from mcp_django.runtime.threads.executor import LeasingExecutor
from mcp_django.runtime.url_elicitation import SealedElicitationPages
from mcp_django.wiring.principal_invalidation import PrincipalInvalidation

P = ParamSpec("P")
T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ProcessServices:
    """Services that last as long as the process.

    Signal handlers, running loops and open streams refer to them, so a change of settings does not replace them.
    """

    lifecycle: Lifecycle
    log_executor: LeasingExecutor
    """Threads for the event log and the admin's rules."""
    event_publisher: EventPublisher
    call_streams: CallStreamRegistry
    sse_message_routers: LoopLocal[SSEMessageRouter]
    principal_invalidation: PrincipalInvalidation


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class Services:
    """Services of a process under its current settings.

    A change of a setting drops the whole object, with the servers and endpoints that were built from it.
    """

    settings: Settings
    process: ProcessServices
    executor: LeasingExecutor
    """Threads for calls."""
    background_slots: LimitedBackgroundSlots
    stream_limiter: StreamLimiter
    """Limit on open streams other than calls."""
    wait_limiter: WaitLimiter
    """Limit on requests that wait and hold a thread of the server (WSGI)."""
    database_readiness: DatabaseReadiness
    event_ids: EventIdCodec
    """Codec of event ids on streams of sessions."""
    elicitation_pages: SealedElicitationPages
    resource_registry: ResourceRegistry
    socket_tickets: SocketTickets
    shared_principal_cache: SharedPrincipalCache | None
    principal_cache_seconds: float
    """Seconds for which a principal is cached in one place."""

    _built: dict[tuple[Any, ...], Any] = field(default_factory=dict, init=False)
    _build_lock: threading.RLock = field(default_factory=threading.RLock, init=False)

    @property
    def lifecycle(self) -> Lifecycle:
        """Registry of running calls and coordinator of their shutdown."""
        return self.process.lifecycle

    @property
    def log_executor(self) -> LeasingExecutor:
        """Threads for the event log and the admin's rules."""
        return self.process.log_executor

    @property
    def event_publisher(self) -> EventPublisher:
        """Publisher and followers of the event log."""
        return self.process.event_publisher

    def get_or_build(self, build: Callable[Concatenate["Services", P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Return the result of `build(self, *args)`, which is built once.

        Under WSGI the first requests are concurrent, and share the result.
        """
        key = build, args, tuple(sorted(kwargs.items()))
        try:
            return cast(T, self._built[key])
        except KeyError:
            with self._build_lock:
                if key not in self._built:
                    self._built[key] = build(self, *args, **kwargs)
                return cast(T, self._built[key])
