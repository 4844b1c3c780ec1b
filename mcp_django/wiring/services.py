"""What a process has once for all servers: lanes, the event log, streams, and its end."""

import asyncio
import functools
from typing import Any

from django.core.signals import setting_changed
from django.dispatch import receiver
from django.utils.module_loading import import_string

from mcp_django import conf
from mcp_django.auth.authorization.rule_cache import RULEBOOK
from mcp_django.auth.principal import FRESH, forget_rights
from mcp_django.runtime.calls.background import CountedPlaces
from mcp_django.runtime.events.channel_layer import find_layer
from mcp_django.runtime.events.list_changes import ListWatch
from mcp_django.runtime.events.publisher import Feeds
from mcp_django.runtime.sealing import Stamp
from mcp_django.runtime.shutdown import Lifecycle
from mcp_django.runtime.streams.event_ids import EventIds
from mcp_django.runtime.streams.registry import ProcessStreams
from mcp_django.runtime.streams.replay_buffer import Bounds
from mcp_django.runtime.streams.sse_messages import ProcessPosts
from mcp_django.runtime.subscriptions import Listens
from mcp_django.runtime.threads.executor import LaneExecutor
from mcp_django.runtime.url_elicitation import SitePages
from mcp_django.server.server import Server
from mcp_django.signals import server_drained

LOG_LANES = 2
"""One may wait for its turn to append while the other reads."""


@functools.cache
def executor() -> LaneExecutor:
    """The lanes of this process, shared by all servers."""
    settings = conf.get_settings()
    limits = settings.limits
    return LaneExecutor(
        lanes=limits.lanes,
        queue=limits.lane_queue,
        parked=limits.waiting_threads,
        interrupt=settings.interrupt_sql,
    )


@functools.cache
def lifecycle() -> Lifecycle:
    """The end of this process. Kept whatever the settings: signal handlers know it."""
    return Lifecycle(grace=lambda: conf.get_settings().limits.shutdown_grace, close_lanes=_close)


def _close(loop: asyncio.AbstractEventLoop) -> None:
    """End what the loop of a process that shuts down has threads and connections for."""
    server_drained.send_robust(sender=None)
    feeds().close(loop)
    log_executor().close(loop)
    executor().close(loop)


@functools.cache
def background_places() -> CountedPlaces:
    """The places of this process for work after the answer. Kept whatever the settings: work hangs on it."""
    return CountedPlaces(lambda: conf.get_settings().limits.background)


@functools.cache
def log_executor() -> LaneExecutor:
    """Lanes for the event log and the rules of the admin. On those of calls they would wait for handlers, of which some
    wait for the log; and the rules are for calls that need no lane, too.
    """
    return LaneExecutor(lanes=LOG_LANES, interrupt=False, name="mcp-log")


def _forget_rights() -> None:
    """Somebody has said that rights changed: those of Django's users, or the rules of the admin."""
    forget_rights()
    RULEBOOK.forget()


@functools.cache
def feeds() -> Feeds:
    """The way into the event log and out of it. Kept whatever the settings: streams hang on it."""
    return Feeds(
        executor=log_executor,
        layer=lambda: find_layer(conf.get_settings().channel_layer),
        keep=lambda: conf.get_settings().limits.event_ttl,
        watch=lambda feeds: ListWatch(
            feeds.publish, server=_server, executor=executor, forget_rights=_forget_rights, settled_after=FRESH
        ),
    )


@functools.cache
def call_streams() -> ProcessStreams:
    """The streams of calls that clients of sessions can go on with. Kept whatever the settings: streams hang on it."""
    return ProcessStreams(feeds(), lifecycle(), stream_bounds)


@functools.cache
def posts() -> ProcessPosts:
    """The streams of HTTP+SSE here, and the way to those elsewhere. Kept whatever the settings: streams hang on it."""
    return ProcessPosts(feeds(), log_executor())


def stream_bounds() -> Bounds:
    limits = conf.get_settings().limits
    return Bounds(limits.events, limits.unsent, limits.unsent_wait, limits.event_ttl)


@functools.cache
def event_ids() -> EventIds:
    """The ids of events on the streams of sessions."""
    return EventIds(Stamp(conf.secret_keys(), purpose="event"))


@functools.cache
def listens() -> Listens:
    """The open streams of this process that are no calls, of all servers."""
    limits = conf.get_settings().limits
    return Listens(limits.listens, limits.listens_per_owner)


@functools.cache
def pages() -> SitePages:
    """The pages that people are sent to, and come back from."""
    return SitePages(conf.secret_keys(), executor=log_executor, feeds=feeds)


def _server(alias: str) -> Server:
    # By name, because servers are made with what is here.
    found: Server = import_string(f"{__package__}.servers.get_server")(alias)
    return found


@receiver(setting_changed)
def _forget(*, setting: str, **kwargs: Any) -> None:
    if setting in {"MCP", "SECRET_KEY", "SECRET_KEY_FALLBACKS", "DEBUG", "DATABASES"}:
        for made in (executor, event_ids, listens, pages):
            made.cache_clear()
