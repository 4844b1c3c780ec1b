"""Models of the app.

Rows that a client can name belong to an owner. Credentials are stored as hashes.
"""

from mcp_django.models.client_health import ClientHealth
from mcp_django.models.client_token import ClientFlow, ClientToken
from mcp_django.models.external_identity import ExternalIdentity
from mcp_django.models.idempotency import OnceResult, SpentState
from mcp_django.models.resource_subscription import ResourceSubscription
from mcp_django.models.rows import StoredState
from mcp_django.models.rules import Access, ScopeGrant, ToolPolicy
from mcp_django.models.service_account import ServiceAccount
from mcp_django.models.session import EndReason, Session, SessionCount
from mcp_django.models.stored.prompt import StoredArgument, StoredMessage, StoredPrompt
from mcp_django.models.stored.resource import StoredResource
from mcp_django.models.stored.version import StoredPromptVersion, StoredResourceVersion
from mcp_django.models.stream_event import EventSequence, StreamEvent
from mcp_django.models.token import PersonalAccessToken

__all__ = [
    "Access",
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
    "ServiceAccount",
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
