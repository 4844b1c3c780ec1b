"""Conversations of a call with its client: requests, responses, rounds."""

from mcp_django.server.context.conversation import (
    INPUT_REQUIRED,
    MAX_ATTEMPTS,
    CallSuspended,
    ClientConversation,
    InputRefused,
    InputRequest,
    InputRequired,
    InputUnavailable,
    InvalidInputResponse,
    LiveConversation,
    ReplayConversation,
    StoredRounds,
    explain_missing_stream,
    parse_value,
)
from mcp_django.server.context.idempotency import RunStep
from mcp_django.server.eras.stateless import compute_state_binding
from mcp_django.server.options import ConversationLimits
from mcp_django.server.ports import StateTooLarge

__all__ = [
    "INPUT_REQUIRED",
    "MAX_ATTEMPTS",
    "CallSuspended",
    "ClientConversation",
    "ConversationLimits",
    "InputRefused",
    "InputRequest",
    "InputRequired",
    "InputUnavailable",
    "InvalidInputResponse",
    "LiveConversation",
    "ReplayConversation",
    "RunStep",
    "StateTooLarge",
    "StoredRounds",
    "compute_state_binding",
    "explain_missing_stream",
    "parse_value",
]
