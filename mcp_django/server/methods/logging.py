"""`logging/setLevel`: how much a session wants to hear (server/utilities/logging)."""

from typing import Any

from mcp_django.protocol.errors import InvalidParams, MethodNotFound
from mcp_django.protocol.types import LEVELS
from mcp_django.server.calls.call import Call


async def set_level(call: Call) -> dict[str, Any]:
    """Set the session's level. An empty object, exactly."""
    session = call.session
    if not call.connection.streams:
        raise MethodNotFound("This server offers no logging: its transport carries nothing but answers")
    if session is None:
        raise MethodNotFound("This server offers no logging: it keeps no sessions, and so no level")
    level = call.params.get("level")
    if level not in LEVELS:
        raise InvalidParams(f"level must be one of {', '.join(LEVELS)}")
    session.log_level = level
    await call.server.sessions.save(session)
    return {}
