"""The rows of the app. What a client can name belongs to an owner; what opens a door is stored as a hash."""

from .client_health import ClientHealth
from .client_token import ClientFlow, ClientToken
from .external_identity import ExternalIdentity
from .once_result import OnceResult
from .resource_subscription import ResourceSubscription
from .rules import ScopeGrant, ToolPolicy
from .session import EndReason, Session
from .session_count import SessionCount
from .spent_state import SpentState
from .stored_prompt import StoredArgument, StoredMessage, StoredPrompt
from .stored_resource import StoredResource
from .stored_state import StoredState
from .stored_version import StoredPromptVersion, StoredResourceVersion
from .stream_event import EventSequence, StreamEvent
from .token import PersonalAccessToken

__all__ = [
    "ClientFlow",
    "ClientHealth",
    "ClientToken",
    "EndReason",
    "EventSequence",
    "ExternalIdentity",
    "OnceResult",
    "PersonalAccessToken",
    "ResourceSubscription",
    "ScopeGrant",
    "Session",
    "SessionCount",
    "SpentState",
    "StoredArgument",
    "StoredMessage",
    "StoredPrompt",
    "StoredPromptVersion",
    "StoredResource",
    "StoredResourceVersion",
    "StoredState",
    "StreamEvent",
    "ToolPolicy",
]
