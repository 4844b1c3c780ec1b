"""`initialize`, `ping` and `server/discover`; and the notifications that keep a session's books."""

import logging
from typing import Any

from mcp_django.protocol.revisions import STATELESS
from mcp_django.schema import natively
from mcp_django.server.calls.call import Call
from mcp_django.server.calls.log_sanitizer import label

logger = logging.getLogger("mcp_django.server")


async def initialize(call: Call) -> dict[str, Any]:
    """Open a session, where the server has them, and say what was agreed on (basic/lifecycle)."""
    server = call.server
    if server.options.require_session:
        call.connection.opened = await server.sessions.open(
            owner=call.principal.key,
            revision=call.revision,
            client_info=call.client_info,
            capabilities=call.capabilities,
            server=server.alias,
            user_id=getattr(call.principal.user, "pk", None),
        )
    # Without a session there is no telling anything but answers, and no level to keep.
    streams = call.connection.streams and server.options.require_session
    body: dict[str, Any] = {
        "protocolVersion": call.revision.version,
        "capabilities": server.capabilities(call.revision, streams=streams),
        "serverInfo": call.revision.shape_implementation(natively(server.info.to_wire)),
    }
    if server.instructions:
        body["instructions"] = natively(str, server.instructions)
    return body


def ping(call: Call) -> dict[str, Any]:
    """An empty object, exactly (basic/utilities/ping)."""
    return {}


def discover(call: Call) -> dict[str, Any]:
    """What the server speaks and serves (server/discover). Only versions that are asked for in this way are named."""
    server = call.server
    capabilities = server.capabilities(call.revision, streams=call.connection.streams)
    body: dict[str, Any] = {"supportedVersions": list(STATELESS), "capabilities": capabilities}
    if server.instructions:
        body["instructions"] = natively(str, server.instructions)
    body = call.era.dress(call, body, private=False)
    # A copy: the era's own is that of every result, and middleware may change this one.
    return {**body, "_meta": {**body["_meta"]}}


async def initialized(call: Call) -> None:
    """The client is ready (basic/lifecycle)."""
    session = call.session
    if session is not None and not session.initialized:
        session.initialized = True
        await call.server.sessions.save(session)


async def cancelled(call: Call) -> None:
    """Give up a request of this session, or a stream of this connection; unknown, finished and malformed ids are
    ignored (basic/utilities/cancellation).
    """
    session, id, reason = call.session, call.params.get("requestId"), call.params.get("reason")
    streams, in_flight = call.connection.subscriptions or {}, call.connection.in_flight
    if (in_flight is None and not streams) or not (type(id) is int or type(id) is str):
        return
    if type(reason) is str:  # both parties SHOULD log it
        logger.debug("The client takes back request %s: %s", label(str(id)), label(reason))
    if id in streams:
        streams.pop(id).cancel()
    elif session is not None and not call.connection.shares:
        await call.server.sessions.cancel(session, id)
    elif in_flight is not None and id in in_flight:
        in_flight[id].cancel()
