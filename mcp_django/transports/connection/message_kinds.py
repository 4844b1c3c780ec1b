"""What a message is, told before any era reads it, and how one is refused."""

from typing import Any

from mcp_django.protocol import jsonrpc
from mcp_django.protocol.errors import InternalError, MCPError
from mcp_django.protocol.revisions import Era
from mcp_django.server.eras import select
from mcp_django.server.eras.handshake import OPENING

CANCELLED = "notifications/cancelled"


def is_notification(raw: Any) -> bool:
    """Has it a method and no id?"""
    return type(raw) is dict and "id" not in raw and type(raw.get("method")) is str


def is_aside(raw: Any) -> bool:
    """Is it what gets no answer, a notification or an answer itself (JSON-RPC 2.0)?"""
    return is_notification(raw) or (type(raw) is dict and "method" not in raw and ("result" in raw or "error" in raw))


def is_request(raw: Any) -> bool:
    """Has it a method and an id?"""
    return type(raw) is dict and "id" in raw and "method" in raw


def opens(raw: Any) -> bool:
    """Does it open a session?"""
    return type(raw) is dict and raw.get("method") == OPENING


def waits_for_session(raw: Any) -> bool:
    """Does it make sense only after a session that is being opened? What takes another message back does before."""
    if type(raw) is list:
        return True
    if type(raw) is not dict or raw.get("method") == CANCELLED:
        return False
    return "method" in raw and select(None, raw) is Era.HANDSHAKE


def id_of(raw: Any) -> jsonrpc.Id | None:
    """Its id, if that can be read."""
    id = raw.get("id") if type(raw) is dict else None
    return id if type(id) is int or type(id) is str else None


def about(raw: Any, problem: MCPError) -> MCPError:
    """The problem, as the answer to this message."""
    problem.request_id = id_of(raw)
    return problem


def busy(raw: Any, text: str) -> MCPError:
    """What refuses this message without a fault of its own."""
    return about(raw, InternalError(text))
