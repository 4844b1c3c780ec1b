"""`logging/setLevel`: how much a session wants to hear (server/utilities/logging)."""

from typing import Any

from ...protocol.errors import InvalidParams, MethodNotFound
from ...protocol.types import LEVELS
from ..call import Call


async def set_level(call: Call) -> dict[str, Any]:
    """Set the session's level. An empty object, exactly."""
    if not call.connection.streams:
        raise MethodNotFound("This server offers no logging: its transport carries nothing but answers")
    level = call.params.get("level")
    if level not in LEVELS:
        raise InvalidParams(f"level must be one of {', '.join(LEVELS)}")
    session = call.session
    if session is not None:
        session.log_level = level
        await call.server.sessions.save(session)
    return {}
