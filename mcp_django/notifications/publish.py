"""The notifications that a project sends by itself."""

import difflib
from collections.abc import Mapping
from typing import Any

from asgiref.sync import sync_to_async
from django.core.exceptions import ImproperlyConfigured
from django.utils.asyncio import async_unsafe

from mcp_django import conf, wiring
from mcp_django.conf.mounts import reach
from mcp_django.protocol.jsonrpc import dumps
from mcp_django.protocol.uri import MAX_LENGTH
from mcp_django.runtime.events.event_log import Draft

LISTS = ("tools", "resources", "prompts")
PREFIX = "notifications/"
FROM_ASYNC = "You cannot call this from an async context; await the function of the same name with an a before it."


@async_unsafe(FROM_ASYNC)
def notify_resource_updated(
    uri: str, *, owner: str | None = None, server: str | None = None, using: str | None = None
) -> None:
    """Tell the clients that subscribed to the resource at `uri` that it changed: `notifications/resources/updated`.

    Said when the transaction on the database `using` commits, by default the one that has this app's tables; at once
    when there is none. One transaction says the same thing once. Only clients that may read the resource are told.

    `owner` is a `Principal.owner` whose resource changed, for a URI under which everybody reads their own: only the
    clients of that principal are told. `server` is the alias of one server; None stands for all of them. Raises
    ValueError when `uri` cannot be one, and ImproperlyConfigured for an unknown alias. (Specification:
    server/resources, subscriptions.)
    """
    if not uri or len(uri) > MAX_LENGTH or "\0" in uri:
        raise ValueError(f"A resource's URI is a text of 1 to {MAX_LENGTH} characters")
    _publish_change("updated", {"uri": uri} if owner is None else {"uri": uri, "owner": owner}, server, using)


@async_unsafe(FROM_ASYNC)
def notify_list_changed(kind: str, *, server: str | None = None, using: str | None = None) -> None:
    """Tell clients that a list changed, so that they ask for it anew: `notifications/tools/list_changed`, or that of
    "resources" (templates included) or "prompts".

    What is registered, what a provider's `version` says and what Django's permissions change is told without this. See
    `notify_resource_updated` for `server` and `using`. Raises ValueError for another kind.
    """
    if kind not in LISTS:
        raise ValueError(f"There are lists of {', '.join(LISTS)}, but not of {kind!r}")
    _publish_change("list_changed", {"kind": kind}, server, using)


@async_unsafe(FROM_ASYNC)
def broadcast(
    method: str, params: Mapping[str, Any] | None = None, *, server: str | None = None, using: str | None = None
) -> None:
    """Send a notification of your own to every session that has a stream open, or resumes one within EVENT_TTL.

    `method` begins with "notifications/"; `params` is an object of JSON. Clients of the stateless era take no
    notifications but those they listen for, and get none. See `notify_resource_updated` for `server` and `using`.
    Raises ValueError for another method, TypeError for params that JSON cannot say.
    """
    if not method.startswith(PREFIX) or method == PREFIX:
        raise ValueError(f'A notification\'s method begins with "{PREFIX}", unlike {method!r}')
    payload: dict[str, Any] = {"method": method}
    if params is not None:
        payload["params"] = dict(params)
    dumps(payload)
    _publish("broadcast", payload, server, using)


async def anotify_resource_updated(
    uri: str, *, owner: str | None = None, server: str | None = None, using: str | None = None
) -> None:
    """`notify_resource_updated` for async code. Inside a call it waits for the commit of the call's transaction."""
    await sync_to_async(notify_resource_updated)(uri, owner=owner, server=server, using=using)


async def anotify_list_changed(kind: str, *, server: str | None = None, using: str | None = None) -> None:
    """`notify_list_changed` for async code. Inside a call it waits for the commit of the call's transaction."""
    await sync_to_async(notify_list_changed)(kind, server=server, using=using)


async def abroadcast(
    method: str, params: Mapping[str, Any] | None = None, *, server: str | None = None, using: str | None = None
) -> None:
    """`broadcast` for async code. Inside a call it waits for the commit of the call's transaction."""
    await sync_to_async(broadcast)(method, params, server=server, using=using)


def _publish(kind: str, payload: dict[str, Any], server: str | None, using: str | None) -> None:
    drafts = [Draft(f"changes:{alias}", kind, payload) for alias in _aliases(server)]
    wiring.feeds().publish_on_commit(*drafts, using=using)


def _publish_change(kind: str, payload: dict[str, Any], server: str | None, using: str | None) -> None:
    """Also on the servers that have these in them, by the URI that it has there."""
    servers = conf.get_settings().servers
    told: dict[tuple[str, str], Draft] = {}
    for alias in _aliases(server):
        for host, begins in reach(servers, alias):
            if "uri" in payload:
                uri = f"{begins}{payload['uri']}"
                if len(uri) <= MAX_LENGTH:
                    told[host, uri] = Draft(f"changes:{host}", kind, {**payload, "uri": uri})
            else:
                told[host, ""] = Draft(f"changes:{host}", kind, payload)
    wiring.feeds().publish_on_commit(*told.values(), using=using)


def _aliases(server: str | None) -> list[str]:
    known = list(conf.get_settings().servers)
    if server is None:
        return known
    if server not in known:
        near = difflib.get_close_matches(server, known, n=1)
        hint = f'; did you mean "{near[0]}"?' if near else ""
        raise ImproperlyConfigured(f'MCP["SERVERS"] has no server "{server}"{hint}')
    return [server]
