"""Work on event loops and threads, and events between processes."""

from mcp_django.aio.asgiref_internals import is_async_to_sync_loop
from mcp_django.aio.clock import monotonic
from mcp_django.aio.loop_local import LoopLocal, find_running_loop
from mcp_django.aio.tasks import (
    BackgroundTasks,
    call_threadsafe,
    run_in_background,
    start_task,
    start_timer,
    wait_for_event,
)
from mcp_django.runtime.events.event_log import Event, EventDraft
from mcp_django.runtime.events.shared_subscription import SharedSubscription
from mcp_django.runtime.shutdown import SHUTDOWN_MESSAGE
from mcp_django.runtime.streams.session_sink import SessionSink, has_open_stream
from mcp_django.runtime.threads.executor import run_on_own_thread
from mcp_django.runtime.threads.pool import clean_thread

__all__ = [
    "SHUTDOWN_MESSAGE",
    "BackgroundTasks",
    "Event",
    "EventDraft",
    "LoopLocal",
    "SessionSink",
    "SharedSubscription",
    "call_threadsafe",
    "clean_thread",
    "find_running_loop",
    "has_open_stream",
    "is_async_to_sync_loop",
    "monotonic",
    "run_in_background",
    "run_on_own_thread",
    "start_task",
    "start_timer",
    "wait_for_event",
]
