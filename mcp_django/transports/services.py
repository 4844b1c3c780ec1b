"""Services of the transports of one server."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from django.conf import settings as django_settings

from mcp_django import conf, wiring
from mcp_django.auth.authentication.authenticator import Authenticator
from mcp_django.conf.options import Limits
from mcp_django.runtime.concurrency import StreamLimiter
from mcp_django.runtime.shutdown import Lifecycle
from mcp_django.runtime.streams.call_streams import CallStreamRegistry
from mcp_django.runtime.streams.event_ids import EventIdCodec
from mcp_django.runtime.streams.replay_buffer import ReplayLimits
from mcp_django.runtime.streams.session_stream import SessionStream
from mcp_django.runtime.subscriptions import SessionEventSource
from mcp_django.server.calls.session import ServerSession
from mcp_django.server.pipeline import Pipeline
from mcp_django.server.server import Server
from mcp_django.transports.security import TransportSecurity
from mcp_django.transports.stream_registry import StreamRegistry
from mcp_django.wiring.authentication import build_authenticator
from mcp_django.wiring.services import Services


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
    call_streams: CallStreamRegistry
    replay_limits: ReplayLimits
    create_session_stream: Callable[[ServerSession], SessionStream]
    event_ids: EventIdCodec

    @property
    def server(self) -> Server:
        return self.pipeline.server


def get_transport_services(alias: str) -> TransportServices:
    """Return the services of a server alias."""
    return wiring.get_services().get_or_build(_build_alias_services, alias)


def _build_alias_services(services: Services, alias: str) -> TransportServices:
    return build_services(wiring.get_server(alias))


def build_services(server: Server) -> TransportServices:
    """Build the services of a server with the settings of this project.

    The server may be built by hand, without an entry in the settings.
    """
    services = wiring.get_services()
    settings, limits, lifecycle = services.settings, services.settings.limits, services.lifecycle
    lifecycle.add_server(server)

    return TransportServices(
        pipeline=Pipeline(server),
        authenticator=get_authenticator(server.alias),
        security=TransportSecurity(
            hosts=conf.allowed_hosts(),
            trusted_origins=[*django_settings.CSRF_TRUSTED_ORIGINS, *settings.allowed_origins],
            cors_origins=settings.cors_allowed_origins,
            development=django_settings.DEBUG,
        ),
        limits=limits,
        lifecycle=lifecycle,
        open_streams=StreamRegistry(lifecycle, check_interval=limits.keep_alive, send_timeout=limits.send_timeout),
        stream_limiter=services.stream_limiter,
        call_streams=services.process.call_streams,
        replay_limits=ReplayLimits(limits.events, limits.send_buffer, limits.send_timeout, limits.event_ttl),
        create_session_stream=partial(
            SessionStream,
            source=SessionEventSource(server, publisher=services.event_publisher, executor=services.executor),
            max_waiting=limits.events,
        ),
        event_ids=services.event_ids,
    )


def get_authenticator(alias: str) -> Authenticator:
    """Return the authenticator of a server alias.

    Servers built by hand share it, and thereby its cache of principals.
    """
    return wiring.get_services().get_or_build(build_authenticator, alias)
