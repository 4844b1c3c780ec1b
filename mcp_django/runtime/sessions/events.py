"""What processes tell each other about sessions: that one has ended or changed, or that a call is taken back.

One topic for all of them, so that a request of a session is a dictionary lookup (`news`).
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
    """Where the log keeps what concerns one session."""
    return f"session:{pk}"


def call_topics(pk: Any) -> str:
    """What the topics of a session's calls begin with, whose streams were left and are kept in the log."""
    return f"stream:{pk}:"


def announce_end(feeds: Feeds, row: SessionRow) -> None:
    """Tell every process that a session is over, once that is committed. From any thread of any process."""
    if row.end_reason == EndReason.IDLE:
        return  # nobody has used it for long, so nobody has anything of it open, or trusts it
    reason = row.end_reason
    feeds.publish_on_commit(
        Draft(session_topic(row.pk), ENDED, {"reason": reason}),
        Draft(TOPIC, ENDED, {"session": row.pk, "reason": reason}),
        using=row._state.db,
    )


class SessionNews(News):
    """The news that concern one store."""

    def __init__(self, feeds: Callable[[], Feeds], hear: Sink, is_needed: Callable[[], bool]) -> None:
        super().__init__(feeds, TOPIC, hear=hear, is_needed=is_needed)
