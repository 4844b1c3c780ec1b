"""The method `logging/setLevel` (server/utilities/logging)."""

from typing import Any

from mcp_django.protocol.errors import InvalidParams, MethodNotFound
from mcp_django.protocol.types import LOG_LEVELS
from mcp_django.server.calls.call import Call


async def set_level(call: Call) -> dict[str, Any]:
    """Set the session's log level. Returns an empty object."""
    session = call.session
    if not call.connection.supports_streaming:
        raise MethodNotFound("This server does not offer logging: its transport carries only responses")
    if session is None:
        raise MethodNotFound("This server does not offer logging: it has no sessions to store a level")

    level = call.params.get("level")
    if level not in LOG_LEVELS:
        raise InvalidParams(f"level must be one of {', '.join(LOG_LEVELS)}")
    session.log_level = level
    await call.server.sessions.save(session)
    return {}
