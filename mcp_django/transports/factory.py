"""HTTP endpoint factories: built at first use, rebuilt when a setting changes."""

import functools
import threading
from collections.abc import Callable
from typing import Any

from django.core.signals import setting_changed
from django.dispatch import receiver

from mcp_django import conf
from mcp_django.auth.authentication.authenticator import Authenticator
from mcp_django.conf.options import Limits
from mcp_django.runtime.calls.concurrency import InFlight
from mcp_django.runtime.sealing import Stamp
from mcp_django.runtime.streams.session_stream import OwnStream
from mcp_django.runtime.subscriptions import SessionView
from mcp_django.server.calls.session import Session
from mcp_django.server.pipeline import Pipeline
from mcp_django.server.server import Server
from mcp_django.transports.connection.dependencies import Shared
from mcp_django.transports.connection.options import DuplexLimits
from mcp_django.transports.connection.registry import Duplexes
from mcp_django.transports.http.get_stream import SessionStreams
from mcp_django.transports.http.handler import Exchange
from mcp_django.transports.http.messages import HTTPLimits
from mcp_django.transports.http.websocket_tickets import TicketDesk
from mcp_django.transports.legacy_sse import LegacySSE
from mcp_django.transports.security import Guard
from mcp_django.transports.stream_registry import Listeners
from mcp_django.wiring import (
    authenticator,
    call_streams,
    event_ids,
    executor,
    feeds,
    get_server,
    lifecycle,
    listens,
    posts,
)


def get_exchange(alias: str = "default") -> Exchange:
    """Return the Streamable HTTP endpoint of a server alias."""
    # Under WSGI the first requests are concurrent; they must share one endpoint.
    with _making:
        return _make_exchange(alias)


_making = threading.Lock()


@functools.cache
def _make_exchange(alias: str) -> Exchange:
    return build_exchange(get_server(alias))


def build_exchange(server: Server) -> Exchange:
    """Build the Streamable HTTP endpoint of a server with the project's settings.

    The server may be built by hand, without an entry in the settings.
    """
    limits = conf.get_settings().limits
    lifecycle().keep(server)
    return Exchange(
        Pipeline(server),
        authenticator=_authenticator(server.alias),
        guard=_guard(),
        in_flight=InFlight(limits.in_flight),
        lifecycle=lifecycle(),
        limits=_http_limits(limits),
        session_streams=_session_streams(server, limits.events),
        allow_get=server.options.enable_get,
        allow_delete=server.options.allow_delete,
    )


def get_duplexes(alias: str = "default") -> Duplexes:
    """Return the connection registry of a server alias."""
    with _making:
        return _make_duplexes(alias)


@functools.cache
def _make_duplexes(alias: str) -> Duplexes:
    return build_duplexes(get_server(alias))


def build_duplexes(server: Server) -> Duplexes:
    """Build the connection registry of a server with the settings of this project.

    The server may be built by hand, without an entry in the settings.
    """
    limits = conf.get_settings().limits
    lifecycle().keep(server)

    shared = Shared(
        pipeline=Pipeline(server),
        own=_own_streams(server, limits.events),
        keep=lambda pk, stream: call_streams().here().keep(pk, stream),
        listens=listens(),
        lifecycle=lifecycle(),
        limits=DuplexLimits(
            body=limits.body,
            nesting=limits.nesting,
            in_flight=limits.in_flight,
            unsent=limits.unsent,
            unsent_wait=limits.unsent_wait,
            keep_alive=limits.keep_alive,
            ping=limits.ping,
        ),
        open_ones=Listeners(lifecycle(), every=limits.keep_alive, patience=limits.unsent_wait),
        guard=_guard(),
        authenticator=_authenticator(server.alias),
    )
    return Duplexes(shared)


def get_legacy_sse(alias: str = "default") -> LegacySSE:
    """Return the HTTP+SSE endpoint of a server alias."""
    with _making:
        return _make_legacy_sse(alias)


@functools.cache
def _make_legacy_sse(alias: str) -> LegacySSE:
    return build_legacy_sse(get_server(alias), _make_duplexes(alias))


def build_legacy_sse(server: Server, duplexes: Duplexes) -> LegacySSE:
    """Build the HTTP+SSE endpoint of a server, with `connections` as its registry."""
    return LegacySSE(
        duplexes,
        alias=server.alias,
        stamp=Stamp(conf.secret_keys(), purpose="stream"),
        posts=posts(),
        limits=_http_limits(conf.get_settings().limits),
    )


def get_ticket_desk(alias: str = "default") -> TicketDesk:
    """Return the endpoint that issues WebSocket tickets for a server alias."""
    with _making:
        return _make_ticket_desk(alias)


@functools.cache
def _make_ticket_desk(alias: str) -> TicketDesk:
    return TicketDesk(_authenticator(alias), _guard(), _http_limits(conf.get_settings().limits))


@functools.cache
def _authenticator(alias: str) -> Authenticator:
    # All transports share one authenticator, and thereby its cache of principals.
    return authenticator(alias)


def _guard() -> Guard:
    settings = conf.get_settings()
    return Guard(
        hosts=conf.allowed_hosts(),
        trusted=[*conf.csrf_trusted_origins(), *settings.allowed_origins],
        readers=settings.cors_allowed_origins,
        development=conf.debug(),
    )


def _http_limits(limits: Limits) -> HTTPLimits:
    return HTTPLimits(
        body=limits.body,
        nesting=limits.nesting,
        upgrade_after=limits.sse_upgrade_after,
        keep_alive=limits.keep_alive,
        unsent=limits.unsent,
        unsent_wait=limits.unsent_wait,
    )


def _own_streams(server: Server, most: int) -> Callable[[Session], OwnStream]:
    view = SessionView(server, feeds=feeds(), executor=executor())
    return lambda session: OwnStream(session, feeds=feeds(), view=view, executor=executor(), most=most)


def _session_streams(server: Server, most: int) -> SessionStreams:
    return SessionStreams(
        ids=event_ids(),
        streams=call_streams().here,
        own=_own_streams(server, most),
        listens=listens(),
        lifecycle=lifecycle(),
        sessions=server.sessions,
    )


@receiver(setting_changed)
def _forget(*, setting: str, **kwargs: Any) -> None:
    if setting in {"MCP", "SECRET_KEY", "SECRET_KEY_FALLBACKS", "ALLOWED_HOSTS", "CSRF_TRUSTED_ORIGINS", "DEBUG"}:
        for made in (_make_exchange, _make_duplexes, _make_legacy_sse, _make_ticket_desk, _authenticator):
            made.cache_clear()
