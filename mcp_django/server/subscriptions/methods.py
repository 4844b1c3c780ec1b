"""Methods of subscriptions, in both eras.

`resources/subscribe` and `resources/unsubscribe` belong to the handshake era (server/resources), `subscriptions/listen`
to the stateless era (basic/patterns/subscriptions).
"""

from collections.abc import Coroutine
from typing import Any

from mcp_django.protocol.errors import InternalError, InvalidRequest, MCPError, MethodNotFound, ResourceNotFound
from mcp_django.protocol.meta import SUBSCRIPTION_ID
from mcp_django.server.calls.call import Call
from mcp_django.server.execution.invoke import is_there, sorted_out
from mcp_django.server.execution.permissions import permit
from mcp_django.server.methods.resources import find_resource, uri_of
from mcp_django.server.ports import Overloaded
from mcp_django.server.primitives.base import Resource, ResourceTemplate
from mcp_django.server.subscriptions.filter import Wanted


def listen(call: Call) -> Coroutine[Any, Any, dict[str, Any]]:
    """Open a stream of changes.

    The returned body is the response that ends the stream. The transport takes the stream from the connection.
    """
    offered = call.server.notified(call.revision, streams=call.connection.streams)
    if not offered.lists and not offered.resources:
        raise MethodNotFound("This server does not send change notifications")
    wanted = Wanted.read(call.params, most=call.server.options.subscriptions)
    lists = tuple(kind for kind in wanted.lists if kind in offered.lists)
    return _listen(call, Wanted(lists, wanted.uris if offered.resources else ()))


async def _listen(call: Call, wanted: Wanted) -> dict[str, Any]:
    connection, id = call.connection, call.id
    assert id is not None  # notifications are never dispatched here
    if connection.subscriptions is None:
        connection.subscriptions = {}
    elif id in connection.subscriptions:
        raise InvalidRequest("A request with this id is still running")
    connection.subscriptions[id] = await call.server.subscriptions.open(call, wanted)
    return {"_meta": {SUBSCRIPTION_ID: id}}


async def subscribe(call: Call) -> dict[str, Any]:
    """Subscribe the session to changes of a resource. Returns an empty object."""
    uri = _offered(call)
    primitive, values = await find_resource(call, uri)
    await permit(call, primitive, ResourceNotFound(uri))
    if not await _is_there(call, primitive, values):
        raise ResourceNotFound(uri)
    assert call.server.changes is not None  # checked by `_check_offered`
    await call.server.changes.subscribe(call, uri)
    return {}


async def _is_there(call: Call, primitive: Resource | ResourceTemplate, values: dict[str, Any]) -> bool:
    try:
        return await is_there(call, primitive, values)
    except (MCPError, Overloaded):
        raise
    except BaseException as problem:
        raise InternalError(str(sorted_out(call, f"{primitive.kind} {primitive.key!r}", problem))) from None


async def unsubscribe(call: Call) -> dict[str, Any]:
    """Unsubscribe the session. A missing subscription or resource is ignored."""
    uri = _offered(call)
    assert call.server.changes is not None  # checked by `_check_offered`
    await call.server.changes.unsubscribe(call, uri)
    return {}


def _offered(call: Call) -> str:
    if not call.server.notified(call.revision, streams=call.connection.streams).resources:
        raise MethodNotFound("This server does not offer resource subscriptions")
    return uri_of(call)
