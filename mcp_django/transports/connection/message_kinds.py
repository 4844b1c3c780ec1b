"""Kinds of raw messages, determined before an era parses them."""

from typing import Any

from mcp_django.protocol import jsonrpc
from mcp_django.protocol.errors import InternalError, MCPError
from mcp_django.protocol.revisions import Era
from mcp_django.server.eras import select
from mcp_django.server.eras.handshake import OPENING

CANCELLED = "notifications/cancelled"


def is_notification(raw: Any) -> bool:
    """Return True if the message has a method and no id."""
    return type(raw) is dict and "id" not in raw and type(raw.get("method")) is str


def is_aside(raw: Any) -> bool:
    """Return True for messages without an answer: notifications and responses."""
    return is_notification(raw) or (type(raw) is dict and "method" not in raw and ("result" in raw or "error" in raw))


def is_request(raw: Any) -> bool:
    """Return True if the message has a method and an id."""
    return type(raw) is dict and "id" in raw and "method" in raw


def opens(raw: Any) -> bool:
    """Return True if the message opens a session."""
    return type(raw) is dict and raw.get("method") == OPENING


def waits_for_session(raw: Any) -> bool:
    """Return True if the message needs the session that is being opened.

    A cancellation is handled at once.
    """
    if type(raw) is list:
        return True
    if type(raw) is not dict or raw.get("method") == CANCELLED:
        return False
    return "method" in raw and select(None, raw) is Era.HANDSHAKE


def id_of(raw: Any) -> jsonrpc.Id | None:
    """Return the id of the message, or None if it is missing or invalid."""
    id = raw.get("id") if type(raw) is dict else None
    return id if type(id) is int or type(id) is str else None


def about(raw: Any, problem: MCPError) -> MCPError:
    """Set the id of this message on an error, and return the error."""
    problem.request_id = id_of(raw)
    return problem


def busy(raw: Any, text: str) -> MCPError:
    """Build the error that rejects this message because of an overload."""
    return about(raw, InternalError(text))
