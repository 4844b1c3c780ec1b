"""Notifications that a project sends explicitly."""

import difflib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from asgiref.sync import sync_to_async
from django.core.exceptions import ImproperlyConfigured
from django.utils.asyncio import async_unsafe

from mcp_django import conf, wiring
from mcp_django.conf.mounts import iter_hosts
from mcp_django.protocol.jsonrpc import dumps, loads, notification
from mcp_django.protocol.log_text import get_logger
from mcp_django.protocol.uri import MAX_URI_LENGTH
from mcp_django.runtime.events.event_log import EventDraft, changes_topic
from mcp_django.runtime.sessions.events import session_topic

logger = get_logger("mcp_django.events")

LIST_KINDS = ("tools", "resources", "prompts")
METHOD_PREFIX = "notifications/"
ASYNC_CONTEXT_ERROR = (
    "You cannot call this from an async context; await the function of the same name with the prefix a."
)


@async_unsafe(ASYNC_CONTEXT_ERROR)
def notify_resource_updated(
    uri: str, *, owner: str | None = None, server: str | None = None, using: str | None = None
) -> None:
    """Notify the subscribers of the resource at `uri` that it changed.

    The notification is `notifications/resources/updated` (specification: server/resources, subscriptions). It is sent
    when the transaction on the database `using` commits, or at once without a transaction. The default database is the
    one with the tables of this app. One transaction sends the same notification once. Only clients that may read the
    resource receive it.

    Without a transaction an error is raised. After a commit it is logged, because the transaction cannot fail any more.

    `owner` is a `Principal.owner`, for a URI under which each principal reads its own resource: only the clients of
    that principal are notified. `server` is the alias of one server; None means all servers.

    Raises:
        ValueError: an invalid `uri`.
        ImproperlyConfigured: an unknown alias.
        django.db.Error: without a transaction, the notification cannot be written to the event log.
    """
    if not uri or len(uri) > MAX_URI_LENGTH or "\0" in uri:
        raise ValueError(f"Invalid resource URI: it must have 1 to {MAX_URI_LENGTH} characters and no NUL")
    _publish_change("updated", {"uri": uri} if owner is None else {"uri": uri, "owner": owner}, server, using)


@async_unsafe(ASYNC_CONTEXT_ERROR)
def notify_list_changed(kind: str, *, server: str | None = None, using: str | None = None) -> None:
    """Notify clients that a list changed, so that they request it again.

    `kind` is "tools", "resources" (templates included) or "prompts"; the notification is
    `notifications/<kind>/list_changed`. Changes of registered primitives, of a provider's `version` and of Django
    permissions are published without this call. See `notify_resource_updated` for `server` and `using`.

    Raises:
        ValueError: an unknown kind.
    """
    if kind not in LIST_KINDS:
        raise ValueError(f"Unknown kind of list {kind!r}: use one of {', '.join(LIST_KINDS)}")
    _publish_change("list_changed", {"kind": kind}, server, using)


@async_unsafe(ASYNC_CONTEXT_ERROR)
def broadcast(
    method: str, params: Mapping[str, Any] | None = None, *, server: str | None = None, using: str | None = None
) -> None:
    """Send a custom notification to all sessions with an open stream.

    Sessions that resume a stream within EVENT_TTL receive it too. `method` begins with "notifications/", and `params`
    is a JSON object. Clients of the stateless era accept only notifications they listen for, so they do not receive it.
    See `notify_resource_updated` for `server` and `using`.

    Raises:
        ValueError: an invalid method.
        TypeError: `params` cannot be encoded as JSON.
    """
    if not method.startswith(METHOD_PREFIX) or method == METHOD_PREFIX:
        raise ValueError(f'Invalid method {method!r}: the method of a notification begins with "{METHOD_PREFIX}"')
    payload: dict[str, Any] = {"method": method}
    if params is not None:
        payload["params"] = dict(params)
    dumps(payload)
    _publish("broadcast", payload, server, using)


@async_unsafe(ASYNC_CONTEXT_ERROR)
def notify_extension_key(field: str, key: str, *, server: str = "default", using: str | None = None) -> None:
    """Notify the clients that follow a key of an extension of its change.

    `field` is the filter member of the extension's `subscription`. The notification of each client is built when it is
    sent, and only for callers that may follow the key. See `notify_resource_updated` for `using`.

    Raises:
        ImproperlyConfigured: an unknown alias.
    """
    _publish("extension", {"field": field, "key": key}, server, using)


async def anotify_extension_key(field: str, key: str, *, server: str = "default", using: str | None = None) -> None:
    """Notify clients of a changed key from async code; see `notify_extension_key`.

    Inside a call it waits for the commit of the call's transaction.
    """
    await sync_to_async(notify_extension_key)(field, key, server=server, using=using)


@async_unsafe(ASYNC_CONTEXT_ERROR)
def notify_session(session: int, method: str, params: Mapping[str, Any], *, using: str | None = None) -> None:
    """Send a notification of an extension to one session of the handshake era.

    `session` is the primary key of its row. The client receives it on its session stream, also when it resumes the
    stream within EVENT_TTL. See `notify_resource_updated` for `using`.

    Raises:
        ValueError: an invalid method.
        TypeError: `params` cannot be encoded as JSON.
    """
    if not method.startswith(METHOD_PREFIX) or method == METHOD_PREFIX:
        raise ValueError(f'Invalid method {method!r}: the method of a notification begins with "{METHOD_PREFIX}"')
    message = loads(notification(method, dict(params)))
    wiring.get_services().event_publisher.publish_on_commit(
        EventDraft(session_topic(session), "message", message), using=using
    )


async def anotify_session(session: int, method: str, params: Mapping[str, Any], *, using: str | None = None) -> None:
    """Send a notification to one session from async code; see `notify_session`."""
    await sync_to_async(notify_session)(session, method, params, using=using)


async def anotify_resource_updated(
    uri: str, *, owner: str | None = None, server: str | None = None, using: str | None = None
) -> None:
    """Notify subscribers from async code; see `notify_resource_updated`.

    Inside a call it waits for the commit of the call's transaction.
    """
    await sync_to_async(notify_resource_updated)(uri, owner=owner, server=server, using=using)


async def anotify_list_changed(kind: str, *, server: str | None = None, using: str | None = None) -> None:
    """Notify clients of a changed list from async code; see `notify_list_changed`.

    Inside a call it waits for the commit of the call's transaction.
    """
    await sync_to_async(notify_list_changed)(kind, server=server, using=using)


async def abroadcast(
    method: str, params: Mapping[str, Any] | None = None, *, server: str | None = None, using: str | None = None
) -> None:
    """Send a custom notification from async code; see `broadcast`.

    Inside a call it waits for the commit of the call's transaction.
    """
    await sync_to_async(broadcast)(method, params, server=server, using=using)


@contextmanager
def log_failure(subject: str) -> Iterator[None]:
    """Log an error of notifying clients of changed `subject` rows, so that the change itself never fails.

    For receivers of signals: the row is saved already, and its author did not call a function that publishes.
    """
    try:
        yield
    except Exception:
        logger.exception("Notifying clients of changed %s failed", subject)


def _publish(kind: str, payload: dict[str, Any], server: str | None, using: str | None) -> None:
    drafts = [EventDraft(changes_topic(alias), kind, payload) for alias in _get_aliases(server)]
    wiring.get_services().event_publisher.publish_on_commit(*drafts, using=using)


def _publish_change(kind: str, payload: dict[str, Any], server: str | None, using: str | None) -> None:
    """Publish a change to the servers and to all servers that mount them, with the URI used there."""
    servers = conf.get_settings().servers
    drafts: dict[tuple[str, str], EventDraft] = {}
    for alias in _get_aliases(server):
        for host, uri_prefix in iter_hosts(servers, alias):
            if "uri" in payload:
                uri = f"{uri_prefix}{payload['uri']}"
                if len(uri) <= MAX_URI_LENGTH:
                    drafts[host, uri] = EventDraft(changes_topic(host), kind, {**payload, "uri": uri})
            else:
                drafts[host, ""] = EventDraft(changes_topic(host), kind, payload)
    wiring.get_services().event_publisher.publish_on_commit(*drafts.values(), using=using)


def _get_aliases(server: str | None) -> list[str]:
    aliases = list(conf.get_settings().servers)
    if server is None:
        return aliases
    if server not in aliases:
        matches = difflib.get_close_matches(server, aliases, n=1)
        hint = f'; did you mean "{matches[0]}"?' if matches else ""
        raise ImproperlyConfigured(f'MCP["SERVERS"] has no server "{server}"{hint}')
    return [server]
