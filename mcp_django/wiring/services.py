"""Services shared by all servers: threads, event log, streams, and shutdown."""

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
"""Number of threads: one may wait for its turn to append while the other reads."""


@functools.cache
def executor() -> LaneExecutor:
    """Return the thread-pool executor of this process, shared by all servers."""
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
    """Return the shutdown manager of this process.

    It survives changes of settings, because signal handlers use it.
    """
    return Lifecycle(grace=lambda: conf.get_settings().limits.shutdown_grace, close_lanes=_close)


def _close(loop: asyncio.AbstractEventLoop) -> None:
    """Close the threads and connections of a loop during shutdown."""
    server_drained.send_robust(sender=None)
    feeds().close(loop)
    log_executor().close(loop)
    executor().close(loop)


@functools.cache
def background_places() -> CountedPlaces:
    """Return the slots for work after the response.

    They survive changes of settings, because running work uses them.
    """
    return CountedPlaces(lambda: conf.get_settings().limits.background)


@functools.cache
def log_executor() -> LaneExecutor:
    """Return the executor for the event log and the admin's rules.

    It is separate from the executor of calls, where it would wait for handlers that wait for the log. Calls without a
    thread need the rules as well.
    """
    return LaneExecutor(lanes=LOG_LANES, interrupt=False, name="mcp-log")


def _forget_rights() -> None:
    """Invalidate cached permissions of users and rules of the admin."""
    forget_rights()
    RULEBOOK.forget()


@functools.cache
def feeds() -> Feeds:
    """Return the publisher and subscriber of the event log.

    It survives changes of settings, because streams use it.
    """
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
    """Return the resumable call streams of sessions.

    They survive changes of settings, because streams use them.
    """
    return ProcessStreams(feeds(), lifecycle(), stream_bounds)


@functools.cache
def posts() -> ProcessPosts:
    """Return the HTTP+SSE streams of this process and the routing to other workers.

    They survive changes of settings, because streams use them.
    """
    return ProcessPosts(feeds(), log_executor())


def stream_bounds() -> Bounds:
    limits = conf.get_settings().limits
    return Bounds(limits.events, limits.unsent, limits.unsent_wait, limits.event_ttl)


@functools.cache
def event_ids() -> EventIds:
    """Return the codec for event ids on streams of sessions."""
    return EventIds(Stamp(conf.secret_keys(), purpose="event"))


@functools.cache
def listens() -> Listens:
    """Return the limiter of open streams other than calls, for all servers."""
    limits = conf.get_settings().limits
    return Listens(limits.listens, limits.listens_per_owner)


@functools.cache
def pages() -> SitePages:
    """Return the pages for URL-mode elicitation."""
    return SitePages(conf.secret_keys(), executor=log_executor, feeds=feeds)


def _server(alias: str) -> Server:
    # Imported by name, because `servers` imports this module.
    found: Server = import_string(f"{__package__}.servers.get_server")(alias)
    return found


@receiver(setting_changed)
def _forget(*, setting: str, **kwargs: Any) -> None:
    if setting in {"MCP", "SECRET_KEY", "SECRET_KEY_FALLBACKS", "DEBUG", "DATABASES"}:
        for made in (executor, event_ids, listens, pages):
            made.cache_clear()
