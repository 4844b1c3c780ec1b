"""The HTTP side of the project's servers, made at its first use and anew when a setting changes."""

import functools
import threading
from typing import Any

from django.core.signals import setting_changed
from django.dispatch import receiver

from ... import conf
from ...runtime.in_flight import InFlight
from ...runtime.own_streams import OwnStream
from ...runtime.subscriptions import SessionView
from ...server.pipeline import Pipeline
from ...server.server import Server
from ...server.session import Session
from ...wiring import authenticator, call_streams, event_ids, executor, feeds, get_server, lifecycle, listens
from ..guards import Guard
from .exchange import Exchange, HTTPLimits
from .session_streams import SessionStreams


def get_exchange(alias: str = "default") -> Exchange:
    """The HTTP side of the server of an alias."""
    # Under WSGI first requests come side by side, and may not get one each.
    with _making:
        return _make_exchange(alias)


_making = threading.Lock()


@functools.cache
def _make_exchange(alias: str) -> Exchange:
    return build_exchange(get_server(alias))


def build_exchange(server: Server) -> Exchange:
    """The HTTP side of any server, also of one built by hand, on this project's settings."""
    settings = conf.get_settings()
    limits = settings.limits
    lifecycle().keep(server)
    return Exchange(
        Pipeline(server),
        authenticator=authenticator(server.alias),
        guard=Guard(
            hosts=conf.allowed_hosts(),
            trusted=[*conf.csrf_trusted_origins(), *settings.allowed_origins],
            readers=settings.cors_allowed_origins,
            development=conf.debug(),
        ),
        in_flight=InFlight(limits.in_flight),
        lifecycle=lifecycle(),
        limits=HTTPLimits(
            body=limits.body,
            nesting=limits.nesting,
            upgrade_after=limits.sse_upgrade_after,
            keep_alive=limits.keep_alive,
            unsent=limits.unsent,
            unsent_wait=limits.unsent_wait,
        ),
        session_streams=_session_streams(server, limits.events),
        allow_get=server.options.enable_get,
        allow_delete=server.options.allow_delete,
    )


def _session_streams(server: Server, most: int) -> SessionStreams:
    view = SessionView(server, feeds=feeds(), executor=executor())

    def own(session: Session) -> OwnStream:
        return OwnStream(session, feeds=feeds(), view=view, executor=executor(), most=most)

    return SessionStreams(
        ids=event_ids(),
        streams=call_streams().here,
        own=own,
        listens=listens(),
        lifecycle=lifecycle(),
        sessions=server.sessions,
    )


@receiver(setting_changed)
def _forget(*, setting: str, **kwargs: Any) -> None:
    if setting in {"MCP", "SECRET_KEY", "SECRET_KEY_FALLBACKS", "ALLOWED_HOSTS", "CSRF_TRUSTED_ORIGINS", "DEBUG"}:
        _make_exchange.cache_clear()
