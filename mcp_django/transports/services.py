"""Services of the transports of one server, built at first use and rebuilt when a setting changes."""

import threading
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial, wraps
from typing import Protocol, TypeVar

from mcp_django import conf
from mcp_django.auth.authentication.authenticator import Authenticator
from mcp_django.conf.options import Limits
from mcp_django.runtime.concurrency import StreamLimiter
from mcp_django.runtime.shutdown import Lifecycle
from mcp_django.runtime.streams.call_streams import CallStreams
from mcp_django.runtime.streams.event_ids import EventIdCodec
from mcp_django.runtime.streams.session_stream import SessionStream
from mcp_django.runtime.subscriptions import SessionEventSource
from mcp_django.server.calls.session import ServerSession
from mcp_django.server.pipeline import Pipeline
from mcp_django.server.server import Server
from mcp_django.transports.security import TransportSecurity
from mcp_django.transports.stream_registry import StreamRegistry
from mcp_django.wiring import (
    create_authenticator,
    get_call_streams,
    get_event_id_codec,
    get_event_publisher,
    get_executor,
    get_lifecycle,
    get_server,
    get_stream_limiter,
)

ENDPOINT_SETTINGS = ("SECRET_KEY", "SECRET_KEY_FALLBACKS", "ALLOWED_HOSTS", "CSRF_TRUSTED_ORIGINS", "DEBUG")
"""Names of Django's settings whose change rebuilds the endpoints."""

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class TransportServices:
    """Objects that all transports of one server share."""

    pipeline: Pipeline
    authenticator: Authenticator
    security: TransportSecurity
    limits: Limits
    lifecycle: Lifecycle
    open_streams: StreamRegistry
    stream_limiter: StreamLimiter
    """Counter of open streams and connections."""
    get_call_streams: Callable[[], CallStreams]
    create_session_stream: Callable[[ServerSession], SessionStream]
    event_ids: EventIdCodec

    @property
    def server(self) -> Server:
        """Server of the transports."""
        return self.pipeline.server


class AliasGetter(Protocol[T_co]):
    """A function that returns the object of a server alias."""

    def __call__(self, alias: str = "default") -> T_co: ...


def shared(*names: str) -> Callable[[Callable[[str], T]], AliasGetter[T]]:
    """Decorate a factory by alias to build one object for each alias.

    A change of `MCP`, or of a setting of these names, discards the objects.
    """

    def wrap(create: Callable[[str], T]) -> AliasGetter[T]:
        cached = conf.cached(*ENDPOINT_SETTINGS, *names)(create)

        @wraps(create)
        def get(alias: str = "default") -> T:
            # Under WSGI the first requests are concurrent; they must share one endpoint.
            with _CREATE_LOCK:
                return cached(alias)

        return get

    return wrap


_CREATE_LOCK = threading.RLock()


@shared()
def get_services(alias: str) -> TransportServices:
    """Return the services of a server alias."""
    return build_services(get_server(alias))


def build_services(server: Server) -> TransportServices:
    """Build the services of a server with the settings of this project.

    The server may be built by hand, without an entry in the settings.
    """
    settings = conf.get_settings()
    limits, lifecycle = settings.limits, get_lifecycle()
    lifecycle.add_server(server)

    return TransportServices(
        pipeline=Pipeline(server),
        authenticator=get_authenticator(server.alias),
        security=TransportSecurity(
            hosts=conf.allowed_hosts(),
            trusted_origins=[*conf.csrf_trusted_origins(), *settings.allowed_origins],
            cors_origins=settings.cors_allowed_origins,
            development=conf.is_debug(),
        ),
        limits=limits,
        lifecycle=lifecycle,
        open_streams=StreamRegistry(lifecycle, check_interval=limits.keep_alive, send_timeout=limits.send_timeout),
        stream_limiter=get_stream_limiter(),
        get_call_streams=get_call_streams().get_loop_streams,
        create_session_stream=partial(
            SessionStream,
            source=SessionEventSource(server, publisher=get_event_publisher(), executor=get_executor()),
            max_waiting=limits.events,
        ),
        event_ids=get_event_id_codec(),
    )


@shared()
def get_authenticator(alias: str) -> Authenticator:
    """Return the authenticator of a server alias.

    Servers built by hand share it, and thereby its cache of principals.
    """
    return create_authenticator(alias)
