"""Methods of a session: `initialize`, `ping`, discovery, log level, notifications."""

from collections.abc import Coroutine
from typing import Any

from mcp_django.protocol.errors import InvalidParams, MethodNotFound
from mcp_django.protocol.jsonrpc import JSONObject
from mcp_django.protocol.log_text import get_logger
from mcp_django.protocol.revisions import STATELESS_VERSIONS
from mcp_django.protocol.types import LOG_LEVELS
from mcp_django.schema import call_in_default_language
from mcp_django.server.calls.call import Call
from mcp_django.server.calls.log_sanitizer import sanitize_label

logger = get_logger("mcp_django.server")


async def initialize(call: Call) -> JSONObject:
    """Open a session if the server has sessions, and return the negotiated terms.

    See basic/lifecycle.
    """
    server = call.server
    if server.options.require_session:
        call.connection.opened_session = await server.ports.sessions.open(
            owner=call.principal.key,
            revision=call.revision,
            client_info=call.client_info,
            capabilities=call.capabilities,
            server=server.alias,
            user_id=getattr(call.principal.user, "pk", None),
        )
    # Without a session the server cannot send notifications and cannot store a log level.
    streams = call.connection.supports_streaming and server.options.require_session

    body: JSONObject = {
        "protocolVersion": call.revision.version,
        "capabilities": server.capabilities(call.revision, streams=streams),
        "serverInfo": call.revision.shape_implementation(call_in_default_language(server.info.to_wire)),
    }
    instructions = await _build_instructions(call)
    if instructions:
        body["instructions"] = instructions
    return body


def ping(call: Call) -> JSONObject:
    """Return an empty object (basic/utilities/ping)."""
    return {}


def discover(call: Call) -> JSONObject | Coroutine[Any, Any, JSONObject]:
    """Return the supported versions and capabilities (server/discover).

    Only versions of the stateless era are listed.
    """
    server = call.server
    if server.extensions.instructing:
        return _discover_with_instructions(call)
    instructions = call_in_default_language(str, server.instructions) if server.instructions else None
    return _build_discovery(call, instructions, is_private=False)


async def _discover_with_instructions(call: Call) -> JSONObject:
    return _build_discovery(call, await _build_instructions(call), is_private=True)


async def _build_instructions(call: Call) -> str | None:
    """Return the instructions of the server, and those of its extensions, as paragraphs."""
    server = call.server
    paragraphs = [call_in_default_language(str, server.instructions)] if server.instructions else []
    for extension in server.extensions.instructing:
        text = await extension.get_instructions(call) if extension.supports_revision(call.revision) else None
        paragraphs += [text] if text else []
    return "\n\n".join(paragraphs) or None


def _build_discovery(call: Call, instructions: str | None, *, is_private: bool) -> JSONObject:
    server = call.server
    capabilities = server.capabilities(call.revision, streams=call.connection.supports_streaming)
    body: JSONObject = {"supportedVersions": list(STATELESS_VERSIONS), "capabilities": capabilities}
    if instructions:
        body["instructions"] = instructions
    body = call.era.add_result_fields(call, body, private=is_private)
    # Copy `_meta`: results share the era's own object, and middleware may change this one.
    return {**body, "_meta": {**body["_meta"]}}


async def handle_initialized(call: Call) -> None:
    """Mark the session as initialized (basic/lifecycle)."""
    session = call.session
    if session is not None and not session.initialized:
        session.initialized = True
        try:
            await call.server.ports.sessions.save(session)
        except BaseException:
            session.initialized = False  # The client may repeat the notification.
            raise


async def handle_cancelled(call: Call) -> None:
    """Cancel a request of this session, or a stream of this connection.

    Unknown, finished and malformed ids are ignored (basic/utilities/cancellation).
    """
    session, id, reason = call.session, call.params.get("requestId"), call.params.get("reason")
    streams, in_flight = call.connection.subscriptions or {}, call.connection.in_flight
    if (in_flight is None and not streams) or not (type(id) is int or type(id) is str):
        return

    if type(reason) is str:  # both parties SHOULD log it
        logger.debug("Request cancelled by the client: %s: %s", sanitize_label(str(id)), sanitize_label(reason))
    if id in streams:
        streams.pop(id).cancel()
    elif session is not None and not call.connection.is_bidirectional:
        await call.server.ports.sessions.cancel(session, id)
    elif in_flight is not None and id in in_flight:
        in_flight[id].cancel()


async def set_level(call: Call) -> JSONObject:
    """Set the session's log level (server/utilities/logging). Returns an empty object."""
    session = call.session
    if not call.connection.supports_streaming:
        raise MethodNotFound("This server does not offer logging: its transport carries only responses")
    if session is None:
        raise MethodNotFound("This server does not offer logging: it has no sessions to store a level")

    level = call.params.get("level")
    if level not in LOG_LEVELS:
        raise InvalidParams(f"level must be one of {', '.join(LOG_LEVELS)}")
    session.log_level = level
    await call.server.ports.sessions.save(session)
    return {}
