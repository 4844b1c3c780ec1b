"""Events about sessions between processes: ended, renewed, call cancelled.

All sessions share one topic, so a request of a session needs no subscription of its own: see `invalidation`.
"""

from typing import Any

from mcp_django.models import EndReason
from mcp_django.models import Session as SessionRow
from mcp_django.runtime.events.event_log import EventDraft
from mcp_django.runtime.events.publisher import EventPublisher

SESSIONS_TOPIC = "sessions"
ENDED, RENEWED, CANCEL = "ended", "renewed", "cancel"


def session_topic(pk: Any) -> str:
    """Return the topic of events for one session: its answers and subscriptions."""
    return f"session:{pk}"


def call_topic_prefix(pk: Any) -> str:
    """Return the prefix of the topics of a session's call streams.

    These streams were left by their clients and are stored in the log.
    """
    return f"stream:{pk}:"


def build_stream_topic(session: Any, token: str, reader: str | None = None) -> str:
    """Return the topic of a call's stream, for one reader or for any later one."""
    topic = f"{call_topic_prefix(session)}{token}"
    return topic if reader is None else f"{topic}:{reader}"


def publish_session_end(publisher: EventPublisher, row: SessionRow) -> None:
    """Publish the end of a session to every process on commit. Thread-safe."""
    if row.end_reason == EndReason.IDLE:
        return  # expired sessions are idle, so they have no open calls or cache entries
    reason = row.end_reason
    publisher.publish_on_commit(
        EventDraft(session_topic(row.pk), ENDED, {"reason": reason}),
        EventDraft(SESSIONS_TOPIC, ENDED, {"session": row.pk, "reason": reason}),
        using=row._state.db,
        robust=True,
    )
