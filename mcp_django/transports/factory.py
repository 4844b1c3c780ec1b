"""HTTP endpoint factories: built at first use, rebuilt when a setting changes."""

import threading
from collections.abc import Callable

from mcp_django import conf
from mcp_django.auth.authentication.authenticator import Authenticator
from mcp_django.runtime.sealing import NameSigner
from mcp_django.runtime.streams.session_stream import SessionStream
from mcp_django.runtime.subscriptions import SessionEventSource
from mcp_django.server.calls.session import ServerSession
from mcp_django.server.pipeline import Pipeline
from mcp_django.server.server import Server
from mcp_django.transports.connection.connection import ConnectionRegistry
from mcp_django.transports.http.get_stream import SessionStreamOpener
from mcp_django.transports.http.handler import StreamableHTTPEndpoint
from mcp_django.transports.http.websocket_tickets import TicketEndpoint
from mcp_django.transports.legacy_sse import LegacySSEEndpoint
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
    get_sse_message_routers,
    get_stream_limiter,
)

ENDPOINT_SETTINGS = ("SECRET_KEY", "SECRET_KEY_FALLBACKS", "ALLOWED_HOSTS", "CSRF_TRUSTED_ORIGINS", "DEBUG")
"""Names of Django's settings whose change rebuilds the endpoints."""


def get_http_endpoint(alias: str = "default") -> StreamableHTTPEndpoint:
    """Return the Streamable HTTP endpoint of a server alias."""
    # Under WSGI the first requests are concurrent; they must share one endpoint.
    with _CREATE_LOCK:
        return _create_http_endpoint(alias)


_CREATE_LOCK = threading.Lock()


@conf.cached(*ENDPOINT_SETTINGS)
def _create_http_endpoint(alias: str) -> StreamableHTTPEndpoint:
    return build_http_endpoint(get_server(alias))


def build_http_endpoint(server: Server) -> StreamableHTTPEndpoint:
    """Build the Streamable HTTP endpoint of a server with the project's settings.

    The server may be built by hand, without an entry in the settings.
    """
    limits = conf.get_settings().limits
    get_lifecycle().add_server(server)
    return StreamableHTTPEndpoint(
        Pipeline(server),
        authenticator=_get_authenticator(server.alias),
        security=_build_security(),
        limits=limits,
        lifecycle=get_lifecycle(),
        session_streams=_build_session_stream_opener(server, limits.events),
    )


def get_connection_registry(alias: str = "default") -> ConnectionRegistry:
    """Return the connection registry of a server alias."""
    with _CREATE_LOCK:
        return _create_connection_registry(alias)


@conf.cached(*ENDPOINT_SETTINGS)
def _create_connection_registry(alias: str) -> ConnectionRegistry:
    return build_connection_registry(get_server(alias))


def build_connection_registry(server: Server) -> ConnectionRegistry:
    """Build the connection registry of a server with the settings of this project.

    The server may be built by hand, without an entry in the settings.
    """
    limits = conf.get_settings().limits
    get_lifecycle().add_server(server)

    return ConnectionRegistry(
        pipeline=Pipeline(server),
        create_session_stream=_build_session_stream_factory(server, limits.events),
        get_call_streams=get_call_streams().get_loop_streams,
        stream_limiter=get_stream_limiter(),
        lifecycle=get_lifecycle(),
        limits=limits,
        open_streams=StreamRegistry(
            get_lifecycle(), check_interval=limits.keep_alive, send_timeout=limits.send_timeout
        ),
        security=_build_security(),
        authenticator=_get_authenticator(server.alias),
    )


def get_legacy_sse(alias: str = "default") -> LegacySSEEndpoint:
    """Return the HTTP+SSE endpoint of a server alias."""
    with _CREATE_LOCK:
        return _create_legacy_sse(alias)


@conf.cached(*ENDPOINT_SETTINGS)
def _create_legacy_sse(alias: str) -> LegacySSEEndpoint:
    return build_legacy_sse(get_server(alias), _create_connection_registry(alias))


def build_legacy_sse(server: Server, connections: ConnectionRegistry) -> LegacySSEEndpoint:
    """Build the HTTP+SSE endpoint of a server, with `connections` as its registry."""
    return LegacySSEEndpoint(
        connections,
        alias=server.alias,
        signer=NameSigner(conf.secret_keys(), purpose="stream"),
        message_routers=get_sse_message_routers(),
        limits=conf.get_settings().limits,
    )


def get_ticket_endpoint(alias: str = "default") -> TicketEndpoint:
    """Return the endpoint that issues WebSocket tickets for a server alias."""
    with _CREATE_LOCK:
        return _create_ticket_endpoint(alias)


@conf.cached(*ENDPOINT_SETTINGS)
def _create_ticket_endpoint(alias: str) -> TicketEndpoint:
    return TicketEndpoint(_get_authenticator(alias), _build_security(), conf.get_settings().limits, get_executor())


@conf.cached(*ENDPOINT_SETTINGS)
def _get_authenticator(alias: str) -> Authenticator:
    # All transports share one authenticator, and thereby its cache of principals.
    return create_authenticator(alias)


def _build_security() -> TransportSecurity:
    settings = conf.get_settings()
    return TransportSecurity(
        hosts=conf.allowed_hosts(),
        trusted_origins=[*conf.csrf_trusted_origins(), *settings.allowed_origins],
        cors_origins=settings.cors_allowed_origins,
        development=conf.is_debug(),
    )


def _build_session_stream_factory(server: Server, max_events: int) -> Callable[[ServerSession], SessionStream]:
    source = SessionEventSource(server, publisher=get_event_publisher(), executor=get_executor())
    return lambda session: SessionStream(
        session, publisher=get_event_publisher(), source=source, executor=get_executor(), max_waiting=max_events
    )


def _build_session_stream_opener(server: Server, max_events: int) -> SessionStreamOpener:
    return SessionStreamOpener(
        ids=get_event_id_codec(),
        get_call_streams=get_call_streams().get_loop_streams,
        create_session_stream=_build_session_stream_factory(server, max_events),
        limiter=get_stream_limiter(),
        lifecycle=get_lifecycle(),
        sessions=server.sessions,
    )
