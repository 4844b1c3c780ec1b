"""Events about sessions between processes: ended, renewed, call cancelled.

All sessions share one topic, so a request of a session needs no subscription of its own: see `invalidation`.
"""

from collections.abc import Callable
from typing import Any

from mcp_django.models import EndReason
from mcp_django.models import Session as SessionRow
from mcp_django.runtime.events.event_log import Draft
from mcp_django.runtime.events.follower import Sink
from mcp_django.runtime.events.invalidation import News
from mcp_django.runtime.events.publisher import Feeds

TOPIC = "sessions"
ENDED, RENEWED, CANCEL = "ended", "renewed", "cancel"


def session_topic(pk: Any) -> str:
    """Return the topic of events for one session."""
    return f"session:{pk}"


def call_topics(pk: Any) -> str:
    """Return the prefix of the topics of a session's call streams.

    These streams were left by their clients and are stored in the log.
    """
    return f"stream:{pk}:"


def announce_end(feeds: Feeds, row: SessionRow) -> None:
    """Publish the end of a session to every process on commit. Thread-safe."""
    if row.end_reason == EndReason.IDLE:
        return  # expired sessions are idle, so they have no open calls or cache entries
    reason = row.end_reason
    feeds.publish_on_commit(
        Draft(session_topic(row.pk), ENDED, {"reason": reason}),
        Draft(TOPIC, ENDED, {"session": row.pk, "reason": reason}),
        using=row._state.db,
    )


class SessionNews(News):
    """Invalidation events for one session store."""

    def __init__(self, feeds: Callable[[], Feeds], hear: Sink, is_needed: Callable[[], bool]) -> None:
        super().__init__(feeds, TOPIC, hear=hear, is_needed=is_needed)
