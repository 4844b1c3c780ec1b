"""Subscriptions to resources of a remote server, over the shared connection.

Each URI has one remote subscription per credential, for all local subscribers. It starts with the first subscriber,
ends with the last one, and is renewed after a reconnection. Subscribers are notified directly, within their own
process.
"""

import asyncio
import weakref
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any

from mcp_django.client import CallError, Client, ClientError
from mcp_django.extensions.calls import get_logger
from mcp_django.extensions.event_loop import start_task, start_timer
from mcp_django.protocol.uri import MAX_URI_LENGTH
from mcp_django.server.subscriptions.filter import covering_uris

logger = get_logger("mcp_django.client")

MAX_RESOURCES, MAX_RESOURCES_PER_CALLER = 500, 100
"""Maximum resources with one credential on one event loop, and maximum per caller."""
SUBSCRIBE_TIMEOUT_SECONDS = 5.0
"""Seconds that a subscriber waits for the subscription, which continues."""
CHECK_INTERVAL_SECONDS, MAX_CHECK_INTERVAL_SECONDS = 5.0, 60.0
"""Seconds between two checks of the connection, and the maximum while it fails."""
NOTIFY_INTERVAL_SECONDS = 0.1
"""Minimum seconds between two notifications of one resource.

Changes in between are combined.
"""

ChangeCallback = Callable[[], None]
Unsubscribe = Callable[[], None]

_SUBSCRIPTION_COUNTS: weakref.WeakKeyDictionary[Client, Counter[str]] = weakref.WeakKeyDictionary()
"""Number of proxies with a subscription, by client and URI: servers share clients."""


class RemoteSubscriptions:
    """Subscriptions to one remote server with one credential, on one event loop."""

    def __init__(self, name: str, client: Callable[[], Client], on_end: Callable[[], object]) -> None:
        """Create an empty set of subscriptions.

        `client` returns the current connection, which can change. `on_end` is called after the last subscription was
        removed.
        """
        self._name = name
        self._client = client
        self._on_end = on_end
        self._callbacks: dict[str, dict[object, ChangeCallback]] = {}
        self._by_owner: Counter[str] = Counter()
        self._attempted: dict[str, asyncio.Event] = {}
        """Events that are set after the first attempt, whatever its result."""
        self._throttled: dict[str, bool] = {}
        """Recently notified resources; True if the resource has changed again."""
        self._changed = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._subscribed_client: Client | None = None
        self._remove_listener: Unsubscribe = _do_nothing
        self._subscribed: set[str] = set()
        self._refused: set[str] = set()
        self._has_warned = False

    async def subscribe(self, uri: str, owner: str, callback: ChangeCallback) -> Unsubscribe:
        """Call `callback` on changes of the remote resource.

        Returns the function that ends the subscription.
        """
        key, callbacks = object(), self._callbacks.get(uri)
        if self._by_owner[owner] >= MAX_RESOURCES_PER_CALLER or (
            callbacks is None and len(self._callbacks) >= MAX_RESOURCES
        ):
            logger.warning("Too many subscriptions to resources of the server %r; one more was refused", self._name)
            return _do_nothing

        if callbacks is None:
            callbacks = self._callbacks.setdefault(uri, {})
            self._attempted[uri] = asyncio.Event()
        callbacks[key] = callback
        self._by_owner[owner] += 1

        self._changed.set()
        if self._task is None:
            # The task serves all callers, so it must not run in the context of one call.
            self._task = start_task(self._run())
        unsubscribe = partial(self._remove_callback, uri, owner, key)

        try:
            async with asyncio.timeout(SUBSCRIBE_TIMEOUT_SECONDS):
                await self._attempted[uri].wait()
        except TimeoutError:
            pass
        except BaseException:
            unsubscribe()
            raise
        return unsubscribe

    async def close(self) -> None:
        """Cancel the task at the end of the loop, and its connections with it."""
        self._callbacks.clear()
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait({self._task})

    def _remove_callback(self, uri: str, owner: str, key: object) -> None:
        callbacks = self._callbacks.get(uri, {})
        if callbacks.pop(key, None) is None:
            return
        self._by_owner[owner] -= 1
        if not self._by_owner[owner]:
            del self._by_owner[owner]
        if not callbacks:
            del self._callbacks[uri], self._attempted[uri]
            self._refused.discard(uri)
            self._changed.set()

    async def _run(self) -> None:
        wait = CHECK_INTERVAL_SECONDS
        try:
            while self._callbacks or self._subscribed:
                self._changed.clear()
                wait = (
                    CHECK_INTERVAL_SECONDS if await self._synchronize() else min(wait * 2, MAX_CHECK_INTERVAL_SECONDS)
                )
                if self._callbacks:
                    try:
                        async with asyncio.timeout(wait):
                            await self._changed.wait()
                    except TimeoutError:
                        pass
        finally:
            self._task = None
            self._switch_client(None)
            self._on_end()

    async def _synchronize(self) -> bool:
        """Synchronize the remote subscriptions; return False if the server is unreachable."""
        attempts = list(self._attempted.values())
        try:
            if self._callbacks:
                client = self._client()
                if client is not self._subscribed_client:
                    self._switch_client(client)
                await client.connect()
            await self._unsubscribe_extra()
            await self._subscribe_missing()
        except ClientError as problem:
            self._warn_once("Subscriptions to resources of the server %r failed: %s", type(problem).__name__)
            return False
        except Exception:
            logger.exception("Subscriptions to resources of the server %r failed", self._name)
            return False
        finally:
            for attempt in attempts:
                attempt.set()

        self._has_warned = False
        return True

    async def _unsubscribe_extra(self) -> None:
        client, extra = self._subscribed_client, self._subscribed - self._callbacks.keys()
        if client is None:
            return
        self._subscribed -= extra
        ending = [client.unsubscribe(uri) for uri in extra if self._release_subscription(client, uri)]
        for problem in await asyncio.gather(*ending, return_exceptions=True):
            if isinstance(problem, Exception) and not isinstance(problem, ClientError):
                raise problem

    async def _subscribe_missing(self) -> None:
        client = self._subscribed_client
        missing = self._callbacks.keys() - self._subscribed - self._refused
        if client is None or not missing or not _supports_subscriptions(client):
            return
        problems = await asyncio.gather(*(self._subscribe(client, uri) for uri in missing), return_exceptions=True)
        for problem in problems:
            if isinstance(problem, BaseException):
                raise problem

    async def _subscribe(self, client: Client, uri: str) -> None:
        counts = _SUBSCRIPTION_COUNTS.setdefault(client, Counter())
        counts[uri] += 1
        self._subscribed.add(uri)

        try:
            await client.subscribe(uri)
        except CallError as problem:
            self._subscribed.discard(uri)
            self._release_subscription(client, uri)
            if uri in self._callbacks:
                self._refused.add(uri)
            self._warn_once("Subscription to a resource refused by the server %r (%d)", problem.code)
        except BaseException:
            self._subscribed.discard(uri)
            self._release_subscription(client, uri)
            raise

    def _release_subscription(self, client: Client, uri: str) -> bool:
        """Release one proxy's subscription; return True if it was the last."""
        counts = _SUBSCRIPTION_COUNTS.get(client, Counter[str]())
        counts[uri] -= 1
        if counts[uri] > 0:
            return False
        del counts[uri]
        return True

    def _switch_client(self, client: Client | None) -> None:
        """Switch to another connection."""
        self._remove_listener()
        if self._subscribed_client is not None:
            for uri in self._subscribed:
                self._release_subscription(self._subscribed_client, uri)
        self._subscribed.clear()
        self._refused.clear()
        self._subscribed_client = client
        self._remove_listener = _do_nothing if client is None else client.on_resource_updated(self._on_resource_updated)

    def _on_resource_updated(self, uri: str) -> None:
        """Notify subscribers of a resource, or of the resource that contains it."""
        if len(uri) <= MAX_URI_LENGTH:
            for covering_uri in covering_uris(uri):
                if covering_uri in self._callbacks:
                    self._notify(covering_uri)

    def _notify(self, uri: str) -> None:
        if uri in self._throttled:
            self._throttled[uri] = True
            return
        self._throttled[uri] = False
        start_timer(NOTIFY_INTERVAL_SECONDS, self._end_throttle, uri)
        for callback in list(self._callbacks[uri].values()):
            callback()

    def _end_throttle(self, uri: str) -> None:
        if self._throttled.pop(uri) and uri in self._callbacks:
            self._notify(uri)

    def _warn_once(self, message: str, *args: Any) -> None:
        """Log a warning, once until the next success."""
        if not self._has_warned:
            self._has_warned = True
            logger.warning(message, self._name, *args)


def _supports_subscriptions(client: Client) -> bool:
    """Return True if the remote server supports subscriptions."""
    return bool(getattr(getattr(client.capabilities, "resources", None), "subscribe", None))


def _do_nothing() -> None:
    pass
