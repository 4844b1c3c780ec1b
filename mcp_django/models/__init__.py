"""The rows of the app. What a client can name belongs to an owner; what opens a door is stored as a hash."""

from .once_result import OnceResult
from .resource_subscription import ResourceSubscription
from .session import EndReason, Session
from .session_count import SessionCount
from .spent_state import SpentState
from .stream_event import EventSequence, StreamEvent
from .token import PersonalAccessToken

__all__ = [
    "EndReason",
    "EventSequence",
    "OnceResult",
    "PersonalAccessToken",
    "ResourceSubscription",
    "Session",
    "SessionCount",
    "SpentState",
    "StreamEvent",
]
