"""What may change, in the words of the protocol: what clients ask to be told of, who is told of an update, and who may
be.
"""

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
"""The kinds of lists, and what a filter calls their changes."""
URIS = "resourceSubscriptions"
LISTS = {kind: f"notifications/{kind}/list_changed" for kind in FILTERS}
"""The notifications about the kinds of lists."""
RESOURCE_UPDATED = "notifications/resources/updated"
ACKNOWLEDGED = "notifications/subscriptions/acknowledged"
logger = logging.getLogger("mcp_django.server")


class Wanted(NamedTuple):
    """What a client asks to be told of, or will be."""

    lists: tuple[str, ...] = ()
    """Kinds of lists: "tools", "prompts", "resources"."""
    uris: tuple[str, ...] = ()
    """Resources."""

    @classmethod
    def read(cls, params: dict[str, Any], *, most: int) -> "Wanted":
        """The filter of a request, of which members that are not known here are ignored. Raises InvalidParams."""
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
            raise InvalidParams(f"params.notifications.{URIS} may name {most} resources at most")
        return cls(tuple(kind for kind, name in FILTERS.items() if given.get(name)), tuple(dict.fromkeys(uris)))

    def to_wire(self) -> dict[str, Any]:
        """The filter that says the same."""
        wire: dict[str, Any] = {FILTERS[kind]: True for kind in self.lists}
        return {**wire, URIS: list(self.uris)} if self.uris else wire


def covering(uri: str) -> Iterator[str]:
    """The URIs whose subscribers are told of a change of `uri`: itself, and those it is a part of.

    The specification lets an update name a part of what was subscribed to (ResourceUpdatedNotification) and leaves open
    what a part is: here, what comes below it after a slash.
    """
    yield uri
    end = uri.rfind("/")
    while end > 0:
        yield uri[: end + 1]
        yield uri[:end]
        end = uri.rfind("/", 0, end)


class Update(NamedTuple):
    """A resource changed."""

    uri: str
    under: str
    """The URI that was subscribed to."""
    free: bool
    """May everybody read it, so that nobody need be asked?"""

    def whole(self) -> "Update":
        """The same of the resource that was subscribed to."""
        return self if self.uri == self.under else Update(self.under, self.under, False)


def concerns(payload: Mapping[str, Any], principal: Principal) -> bool:
    """Is what changed something that `principal` sees? When the rights of one user change, that user's lists alone do;
    and a resource may have changed for its `owner` only.
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
    """Is this a registered resource, or one of a registered template, that everybody may read?"""
    registry = server.registry
    found: Resource | ResourceTemplate | None = registry.resources.get(uri)
    if found is None:
        matched = registry.match(uri)
        found = None if matched is None else matched[0]
    return found is not None and not found.probe and not server.authorizer.guards(found)


async def may_read(call: Call, uri: str) -> bool:
    """Is there such a resource, and may the caller read it now? What cannot be found out is no. Raises Overloaded."""
    return await readable(call, uri) is not None


async def readable(call: Call, uri: str) -> Resource | ResourceTemplate | None:
    """What is at `uri`, if the caller may read it now. What cannot be found out is nothing. Raises Overloaded."""
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
        logger.exception("Whether a resource may be read could not be found out; its subscribers are not told of it")
        return None
