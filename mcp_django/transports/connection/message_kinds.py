"""Kinds of raw messages, determined before an era parses them."""

from typing import Any

from mcp_django.protocol import jsonrpc
from mcp_django.protocol.errors import InternalError, MCPError
from mcp_django.protocol.revisions import Era
from mcp_django.server.eras import select_era
from mcp_django.server.eras.handshake import INITIALIZE

CANCELLED_METHOD = "notifications/cancelled"


def is_notification(raw: Any) -> bool:
    """Return True if the message has a method and no id."""
    return type(raw) is dict and "id" not in raw and type(raw.get("method")) is str


def is_unanswered(raw: Any) -> bool:
    """Return True for messages without an answer: notifications and responses."""
    return is_notification(raw) or (type(raw) is dict and "method" not in raw and ("result" in raw or "error" in raw))


def is_request(raw: Any) -> bool:
    """Return True if the message has a method and an id."""
    return type(raw) is dict and "id" in raw and "method" in raw


def is_initialize(raw: Any) -> bool:
    """Return True if the message opens a session."""
    return type(raw) is dict and raw.get("method") == INITIALIZE


def needs_session(raw: Any) -> bool:
    """Return True if the message needs the session that is being opened.

    A cancellation is handled at once.
    """
    if type(raw) is list:
        return True
    if type(raw) is not dict or raw.get("method") == CANCELLED_METHOD:
        return False
    return "method" in raw and select_era(None, raw) is Era.HANDSHAKE


def get_id(raw: Any) -> jsonrpc.Id | None:
    """Return the id of the message, or None if it is missing or invalid."""
    id = raw.get("id") if type(raw) is dict else None
    return id if type(id) is int or type(id) is str else None


def with_request_id(raw: Any, error: MCPError) -> MCPError:
    """Set the id of this message on an error, and return the error."""
    error.request_id = get_id(raw)
    return error


def build_busy_error(raw: Any, text: str) -> MCPError:
    """Build the error that rejects this message because of an overload."""
    return with_request_id(raw, InternalError(text))
