"""Invalidation of cached principals in all processes."""

import functools

from mcp_django.aio.tasks import BackgroundTasks
from mcp_django.auth.authentication import principal_cache
from mcp_django.auth.authentication.active_principals import ACTIVE_PRINCIPALS
from mcp_django.auth.authentication.principal_cache import SharedPrincipalCache
from mcp_django.auth.authorization.rule_cache import RULE_CACHE
from mcp_django.models.commit_hooks import call_on_commit
from mcp_django.protocol.log_text import get_logger
from mcp_django.runtime.events.event_log import Event
from mcp_django.runtime.events.invalidation import InvalidationTopic
from mcp_django.runtime.events.publisher import EventPublisher
from mcp_django.runtime.sessions.activity import publish_callers

logger = get_logger("mcp_django.auth")

PRINCIPALS_TOPIC, INVALIDATE_EVENT = "principals", "forget"
"""Topic and name of events in the event log that invalidate cached principals."""


class PrincipalInvalidation:
    """Sender and receiver of invalidations, and reporter of the callers of this process."""

    def __init__(self, publisher: EventPublisher) -> None:
        self.topic = InvalidationTopic(
            publisher, PRINCIPALS_TOPIC, handler=self.on_invalidation, is_needed=self.report_callers
        )
        self._reports = BackgroundTasks()

    def publish(self, owner: str | None, using: str, shared_cache: SharedPrincipalCache | None) -> None:
        """Invalidate the principals of an owner, or all, when the transaction of the database `using` commits."""
        if shared_cache is not None:
            shared_cache.invalidate(owner)
            invalidate = functools.partial(shared_cache.invalidate, owner)
            failure = "Failed to discard shared principals after a commit"
            call_on_commit(invalidate, using=using, logger=logger, failure=failure)
        draft = self.topic.create_draft(INVALIDATE_EVENT, owner=owner)
        self.topic.publisher.publish_on_commit(draft, using=using)

    def on_invalidation(self, event: Event) -> None:
        """Discard the principals that an event of another process names."""
        owner = event.payload.get("owner")
        if owner is None:
            RULE_CACHE.invalidate()  # rules affect the permissions of every principal
        principal_cache.invalidate_in_process(
            principal_cache.match_all if owner is None else principal_cache.match_user(owner)
        )

    def report_callers(self) -> bool:
        """Report the callers since the last report; return True if the subscription is still needed."""
        callers = ACTIVE_PRINCIPALS.take()
        if callers:
            self._reports.spawn(publish_callers(self.topic.publisher, self.topic.sender_id, callers))
        return principal_cache.has_cached_principals()
