"""Subscription filters: requested changes, matching subscribers, read permission."""

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, NamedTuple

from mcp_django.protocol.errors import InvalidParams, MCPError
from mcp_django.protocol.jsonrpc import JSONMapping, JSONObject
from mcp_django.protocol.log_text import get_logger
from mcp_django.protocol.uri import MAX_URI_LENGTH
from mcp_django.server.calls.call import Call
from mcp_django.server.execution.invoke import resource_exists, run_primitive
from mcp_django.server.execution.permissions import check_permission
from mcp_django.server.methods.resources import find_resource
from mcp_django.server.ports import Overloaded, Principal
from mcp_django.server.primitives.base import Resource, ResourceTemplate

if TYPE_CHECKING:
    from mcp_django.server.server import Server

FILTER_FIELDS = {"tools": "toolsListChanged", "prompts": "promptsListChanged", "resources": "resourcesListChanged"}
"""Kind of list to the field of a filter for its changes."""
URIS_FIELD = "resourceSubscriptions"
RESOURCE_UPDATED = "notifications/resources/updated"
ACKNOWLEDGED = "notifications/subscriptions/acknowledged"
logger = get_logger("mcp_django.server")


class ExtensionKey(NamedTuple):
    """A key in a filter member of an extension."""

    field: str
    key: str


class SubscriptionFilter(NamedTuple):
    """The changes that a client requests or receives."""

    lists: tuple[str, ...] = ()
    """Kinds of lists: "tools", "prompts", "resources"."""
    uris: tuple[str, ...] = ()
    """URIs of resources."""
    keys: tuple[ExtensionKey, ...] = ()
    """Keys in the members of extensions."""

    @classmethod
    def parse(cls, params: JSONObject, *, max_uris: int, fields: Iterable[str] = ()) -> "SubscriptionFilter":
        """Parse the filter of a request, ignoring unknown members. Raises InvalidParams.

        `fields` are the members of extensions. `max_uris` limits each array.
        """
        given = params.get("notifications")
        if type(given) is not dict:
            raise InvalidParams("params.notifications must be an object")
        for name in FILTER_FIELDS.values():
            if type(given.get(name, False)) is not bool:
                raise InvalidParams(f"params.notifications.{name} must be true or false")
        uris = _parse_strings(given, URIS_FIELD, max_uris)
        keys = [ExtensionKey(field, key) for field in fields for key in _parse_strings(given, field, max_uris)]
        lists = tuple(kind for kind, name in FILTER_FIELDS.items() if given.get(name))
        return cls(lists, tuple(uris), tuple(keys))

    def to_wire(self) -> JSONObject:
        """Return the filter in wire form."""
        wire: JSONObject = {FILTER_FIELDS[kind]: True for kind in self.lists}
        if self.uris:
            wire[URIS_FIELD] = list(self.uris)
        for field, key in self.keys:
            wire.setdefault(field, []).append(key)
        return wire


def _parse_strings(given: JSONObject, field: str, limit: int) -> list[str]:
    """Return the distinct strings of a member of a filter. Raises InvalidParams."""
    strings = given.get(field, [])
    if type(strings) is not list or not all(type(one) is str for one in strings):
        raise InvalidParams(f"params.notifications.{field} must be an array of strings")
    if len(strings) > limit:
        raise InvalidParams(f"params.notifications.{field} must have at most {limit} entries, not {len(strings)}")
    return list(dict.fromkeys(strings))


def covering_uris(uri: str) -> Iterator[str]:
    """Yield the URIs whose subscribers are notified of a change of `uri`.

    They are `uri` itself and its parents. The specification allows an update to name a part of a subscribed resource
    (ResourceUpdatedNotification), without a definition of a part. Here a part is a path below the resource, after a
    slash.
    """
    yield uri
    end = uri.rfind("/")
    while end > 0:
        yield uri[: end + 1]
        yield uri[:end]
        end = uri.rfind("/", 0, end)


class ResourceUpdate(NamedTuple):
    """A change of a resource."""

    uri: str
    subscribed_uri: str
    """The URI of the subscription."""
    is_public: bool
    """True if all callers may read the resource, without a permission check."""

    def to_subscribed(self) -> "ResourceUpdate":
        """Return the update for the subscribed resource as a whole."""
        return (
            self if self.uri == self.subscribed_uri else ResourceUpdate(self.subscribed_uri, self.subscribed_uri, False)
        )


def is_relevant(payload: JSONMapping, principal: Principal) -> bool:
    """Return True if the change is visible to `principal`.

    A change of a user's permissions affects only that user's lists. A change of a resource may affect only its `owner`.
    """
    owner = payload.get("owner")
    if owner is not None and owner != principal.owner:
        return False
    user = payload.get("user")
    if user is None:
        return True
    pk = getattr(principal.user, "pk", None)
    return pk is not None and str(pk) == user


def is_public(server: "Server", uri: str) -> bool:
    """Return True for a registered resource or template that all callers may read."""
    registry = server.registry
    resource: Resource | ResourceTemplate | None = registry.resources.get(uri)
    if resource is None:
        matched = registry.match(uri)
        resource = None if matched is None else matched[0]
    return resource is not None and not resource.check_exists and not server.ports.authorizer.is_restricted(resource)


async def read_extension_key(call: Call, key: ExtensionKey) -> JSONObject | None:
    """Return the params of the notification about a key, or None if the caller may not follow it.

    A failed check counts as None. Raises Overloaded.
    """
    subscription = call.server.extensions.subscriptions[key.field]
    try:
        await check_permission(call, subscription, InvalidParams("Unknown key"))
        params: JSONObject | None = await run_primitive(call, subscription, {"key": key.key})
        return params
    except MCPError:
        return None


async def can_read(call: Call, uri: str) -> bool:
    """Return True if the resource exists and the caller may read it now.

    A failed check counts as False. Raises Overloaded.
    """
    return await find_readable(call, uri) is not None


async def find_readable(call: Call, uri: str) -> Resource | ResourceTemplate | None:
    """Return the resource at `uri` if the caller may read it now, else None.

    A failed check counts as None. Raises Overloaded.
    """
    if len(uri) > MAX_URI_LENGTH:
        return None

    try:
        primitive, values = await find_resource(call, uri)
        authorizer = call.server.ports.authorizer
        if authorizer.is_restricted(primitive) and not (await authorizer.decide(call.principal, primitive)).allowed:
            return None
        return primitive if await resource_exists(call, primitive, values) else None
    except Overloaded:
        raise
    except MCPError:
        return None
    except Exception:
        logger.exception("Read permission check failed; the subscribers of the resource are not notified")
        return None
