"""Methods of subscriptions, in both eras.

`resources/subscribe` and `resources/unsubscribe` belong to the handshake era (server/resources), `subscriptions/listen`
to the stateless era (basic/patterns/subscriptions).
"""

from collections.abc import Coroutine
from typing import Any

from mcp_django.protocol.errors import InternalError, InvalidRequest, MCPError, MethodNotFound, ResourceNotFound
from mcp_django.protocol.jsonrpc import JSONObject
from mcp_django.protocol.meta import SUBSCRIPTION_ID
from mcp_django.server.calls.call import Call
from mcp_django.server.composition.extension import Extension
from mcp_django.server.execution.failures import translate_failure
from mcp_django.server.execution.invoke import resource_exists
from mcp_django.server.execution.permissions import check_permission
from mcp_django.server.methods.resources import find_resource, get_uri
from mcp_django.server.ports import Overloaded
from mcp_django.server.primitives.base import Resource, ResourceTemplate
from mcp_django.server.subscriptions.filter import SubscriptionFilter


def listen(call: Call) -> Coroutine[Any, Any, JSONObject]:
    """Open a stream of changes.

    The returned body is the response that ends the stream. The transport takes the stream from the connection.
    """
    offered = call.server.get_notified_changes(call.revision, streams=call.connection.supports_streaming)
    extensions = _find_extensions(call)
    if not offered.lists and not offered.includes_resources and not extensions:
        raise MethodNotFound("This server does not send change notifications")

    limit = call.server.options.subscriptions
    requested = SubscriptionFilter.parse(call.params, max_uris=limit, fields=extensions)
    for field in {key.field for key in requested.keys}:
        extensions[field].require_declaration(call)

    lists = tuple(kind for kind in requested.lists if kind in offered.lists)
    uris = requested.uris if offered.includes_resources else ()
    return _open_stream(call, SubscriptionFilter(lists, uris, requested.keys))


def _find_extensions(call: Call) -> dict[str, Extension]:
    """Return the extensions whose changes the server can send to the caller, by filter member."""
    if call.server.ports.change_feed is None or not call.connection.supports_streaming:
        return {}
    return {
        field: subscription.extension
        for field, subscription in call.server.extensions.subscriptions.items()
        if subscription.extension.supports_revision(call.revision)
    }


async def _open_stream(call: Call, filter: SubscriptionFilter) -> JSONObject:
    connection, id = call.connection, call.id
    assert id is not None  # notifications are never dispatched here
    if connection.subscriptions is None:
        connection.subscriptions = {}
    elif id in connection.subscriptions:
        raise InvalidRequest("A request with this id is still running")
    connection.subscriptions[id] = await call.server.subscriptions.open(call, filter)
    return {"_meta": {SUBSCRIPTION_ID: id}}


async def subscribe(call: Call) -> JSONObject:
    """Subscribe the session to changes of a resource. Returns an empty object."""
    uri = _check_offered(call)
    primitive, values = await find_resource(call, uri)
    await check_permission(call, primitive, ResourceNotFound(uri))
    if not await _check_exists(call, primitive, values):
        raise ResourceNotFound(uri)
    assert call.server.ports.change_feed is not None  # checked by `_check_offered`
    await call.server.ports.change_feed.subscribe(call, uri)
    return {}


async def _check_exists(call: Call, primitive: Resource | ResourceTemplate, values: dict[str, Any]) -> bool:
    try:
        return await resource_exists(call, primitive, values)
    except (MCPError, Overloaded):
        raise
    except BaseException as problem:
        raise InternalError(str(translate_failure(call, f"{primitive.kind} {primitive.key!r}", problem))) from None


async def unsubscribe(call: Call) -> JSONObject:
    """Unsubscribe the session. A missing subscription or resource is ignored."""
    uri = _check_offered(call)
    assert call.server.ports.change_feed is not None  # checked by `_check_offered`
    await call.server.ports.change_feed.unsubscribe(call, uri)
    return {}


def _check_offered(call: Call) -> str:
    if not call.server.get_notified_changes(
        call.revision, streams=call.connection.supports_streaming
    ).includes_resources:
        raise MethodNotFound("This server does not offer resource subscriptions")
    return get_uri(call)
