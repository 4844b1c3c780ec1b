"""Subscription filters: requested changes, matching subscribers, read permission."""

import logging
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from mcp_django.protocol.errors import InvalidParams, MCPError
from mcp_django.protocol.uri import MAX_LENGTH
from mcp_django.server.calls.call import Call
from mcp_django.server.execution.invoke import is_there
from mcp_django.server.methods.resources import find_resource
from mcp_django.server.ports import Overloaded, Principal
from mcp_django.server.primitives.base import Resource, ResourceTemplate

if TYPE_CHECKING:
    from mcp_django.server.server import Server

FILTERS = {"tools": "toolsListChanged", "prompts": "promptsListChanged", "resources": "resourcesListChanged"}
"""Kind of list to the field of a filter for its changes."""
URIS = "resourceSubscriptions"
LISTS = {kind: f"notifications/{kind}/list_changed" for kind in FILTERS}
"""Kind of list to the notification of its changes."""
RESOURCE_UPDATED = "notifications/resources/updated"
ACKNOWLEDGED = "notifications/subscriptions/acknowledged"
logger = logging.getLogger("mcp_django.server")


class Wanted(NamedTuple):
    """The changes that a client requests or receives."""

    lists: tuple[str, ...] = ()
    """Kinds of lists: "tools", "prompts", "resources"."""
    uris: tuple[str, ...] = ()
    """URIs of resources."""

    @classmethod
    def read(cls, params: dict[str, Any], *, most: int) -> "Wanted":
        """Parse the filter of a request, ignoring unknown members. Raises InvalidParams."""
        given = params.get("notifications")
        if type(given) is not dict:
            raise InvalidParams("params.notifications must be an object")
        for name in FILTERS.values():
            if type(given.get(name, False)) is not bool:
                raise InvalidParams(f"params.notifications.{name} must be true or false")
        uris = given.get(URIS, [])
        if type(uris) is not list or not all(type(uri) is str for uri in uris):
            raise InvalidParams(f"params.notifications.{URIS} must be an array of strings")
        if len(uris) > most:
            raise InvalidParams(f"params.notifications.{URIS} must name at most {most} resources")
        return cls(tuple(kind for kind, name in FILTERS.items() if given.get(name)), tuple(dict.fromkeys(uris)))

    def to_wire(self) -> dict[str, Any]:
        """Return the filter in wire form."""
        wire: dict[str, Any] = {FILTERS[kind]: True for kind in self.lists}
        return {**wire, URIS: list(self.uris)} if self.uris else wire


def covering(uri: str) -> Iterator[str]:
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


class Update(NamedTuple):
    """A change of a resource."""

    uri: str
    under: str
    """The URI of the subscription."""
    free: bool
    """True if all callers may read the resource, without a permission check."""

    def whole(self) -> "Update":
        """Return the update for the subscribed resource as a whole."""
        return self if self.uri == self.under else Update(self.under, self.under, False)


def concerns(payload: Mapping[str, Any], principal: Principal) -> bool:
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


def is_free(server: "Server", uri: str) -> bool:
    """Return True for a registered resource or template that all callers may read."""
    registry = server.registry
    found: Resource | ResourceTemplate | None = registry.resources.get(uri)
    if found is None:
        matched = registry.match(uri)
        found = None if matched is None else matched[0]
    return found is not None and not found.probe and not server.authorizer.guards(found)


async def may_read(call: Call, uri: str) -> bool:
    """Return True if the resource exists and the caller may read it now.

    A failed check counts as False. Raises Overloaded.
    """
    return await readable(call, uri) is not None


async def readable(call: Call, uri: str) -> Resource | ResourceTemplate | None:
    """Return the resource at `uri` if the caller may read it now, else None.

    A failed check counts as None. Raises Overloaded.
    """
    if len(uri) > MAX_LENGTH:
        return None

    try:
        primitive, values = await find_resource(call, uri)
        authorizer = call.server.authorizer
        if authorizer.guards(primitive) and not (await authorizer.decide(call.principal, primitive)).allowed:
            return None
        return primitive if await is_there(call, primitive, values) else None
    except Overloaded:
        raise
    except MCPError:
        return None
    except Exception:
        logger.exception("Read permission check failed; the subscribers of the resource are not notified")
        return None
