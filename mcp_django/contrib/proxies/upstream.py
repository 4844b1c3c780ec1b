"""Subscriptions to resources of a remote server, over the shared connection.

Each URI has one remote subscription per credential, for all local subscribers. It starts with the first subscriber,
ends with the last one, and is renewed after a reconnection. Subscribers are notified directly, within their own
process.
"""

import asyncio
import contextvars
import logging
import weakref
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any

from mcp_django.client import Client
from mcp_django.client.errors import CallError, ClientError
from mcp_django.protocol.uri import MAX_LENGTH
from mcp_django.server.subscriptions.filter import covering

logger = logging.getLogger("mcp_django.client")

RESOURCES, EACH = 500, 100
"""Maximum resources with one credential on one event loop, and maximum per caller."""
PATIENCE = 5.0
"""Seconds that a subscriber waits for the subscription, which continues."""
LOOK, SELDOM = 5.0, 60.0
"""Seconds between two checks of the connection, and the maximum while it fails."""
REST = 0.1
"""Minimum seconds between two notifications of one resource.

Changes in between are combined.
"""

Tell = Callable[[], None]
Stop = Callable[[], None]

_HELD: weakref.WeakKeyDictionary[Client, Counter[str]] = weakref.WeakKeyDictionary()
"""Number of proxies with a subscription, by client and URI: servers share clients."""


class Upstream:
    """Subscriptions to one remote server with one credential, on one event loop."""

    def __init__(self, name: str, client: Callable[[], Client], ended: Callable[[], None]) -> None:
        """Create an empty set of subscriptions.

        `client` returns the current connection, which can change. `on_end` is called after the last subscription was
        removed.
        """
        self._name, self._client, self._ended = name, client, ended
        self._tells: dict[str, dict[object, Tell]] = {}
        self._by_owner: Counter[str] = Counter()
        self._asked: dict[str, asyncio.Event] = {}
        """Events that are set after the first attempt, whatever its result."""
        self._resting: dict[str, bool] = {}
        """Recently notified resources; True if the resource has changed again."""
        self._changed = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._on: Client | None = None
        self._unlisten: Stop = _nothing
        self._theirs: set[str] = set()
        self._refused: set[str] = set()
        self._complained = False

    async def follow(self, uri: str, owner: str, tell: Tell) -> Stop:
        """Call `callback` on changes of the remote resource.

        Returns the function that ends the subscription.
        """
        key, those = object(), self._tells.get(uri)
        if self._by_owner[owner] >= EACH or (those is None and len(self._tells) >= RESOURCES):
            logger.warning("Too many subscriptions to resources of the server %r; one more was refused", self._name)
            return _nothing

        if those is None:
            those, self._asked[uri] = self._tells.setdefault(uri, {}), asyncio.Event()
        those[key] = tell
        self._by_owner[owner] += 1

        self._changed.set()
        if self._task is None:
            # The task serves all callers, so it must not run in the context of one call.
            self._task = asyncio.get_running_loop().create_task(self._keep(), context=contextvars.Context())
        stop = partial(self._leave, uri, owner, key)

        try:
            async with asyncio.timeout(PATIENCE):
                await self._asked[uri].wait()
        except TimeoutError:
            pass
        except BaseException:
            stop()
            raise
        return stop

    async def close(self) -> None:
        """Cancel the task at the end of the loop, and its connections with it."""
        self._tells.clear()
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait({self._task})

    def _leave(self, uri: str, owner: str, key: object) -> None:
        those = self._tells.get(uri, {})
        if those.pop(key, None) is None:
            return
        self._by_owner[owner] -= 1
        if not self._by_owner[owner]:
            del self._by_owner[owner]
        if not those:
            del self._tells[uri], self._asked[uri]
            self._refused.discard(uri)
            self._changed.set()

    async def _keep(self) -> None:
        wait = LOOK
        try:
            while self._tells or self._theirs:
                self._changed.clear()
                wait = LOOK if await self._bring_about() else min(wait * 2, SELDOM)
                if self._tells:
                    try:
                        async with asyncio.timeout(wait):
                            await self._changed.wait()
                    except TimeoutError:
                        pass
        finally:
            self._task = None
            self._move(None)
            self._ended()

    async def _bring_about(self) -> bool:
        """Synchronize the remote subscriptions; return False if the server is unreachable."""
        asked = list(self._asked.values())
        try:
            if self._tells:
                client = self._client()
                if client is not self._on:
                    self._move(client)
                await client.connect()
            await self._give_up()
            await self._take_on()
        except ClientError as problem:
            self._complain("Subscriptions to resources of the server %r failed: %s", type(problem).__name__)
            return False
        except Exception:
            logger.exception("Subscriptions to resources of the server %r failed", self._name)
            return False
        finally:
            for one in asked:
                one.set()

        self._complained = False
        return True

    async def _give_up(self) -> None:
        client, extra = self._on, self._theirs - self._tells.keys()
        if client is None:
            return
        self._theirs -= extra
        ending = [client.unsubscribe(uri) for uri in extra if self._release(client, uri)]
        for problem in await asyncio.gather(*ending, return_exceptions=True):
            if isinstance(problem, Exception) and not isinstance(problem, ClientError):
                raise problem

    async def _take_on(self) -> None:
        client = self._on
        missing = self._tells.keys() - self._theirs - self._refused
        if client is None or not missing or not _declares(client):
            return
        problems = await asyncio.gather(*(self._subscribe(client, uri) for uri in missing), return_exceptions=True)
        for problem in problems:
            if isinstance(problem, BaseException):
                raise problem

    async def _subscribe(self, client: Client, uri: str) -> None:
        held = _HELD.setdefault(client, Counter())
        held[uri] += 1
        self._theirs.add(uri)

        try:
            await client.subscribe(uri)
        except CallError as problem:
            self._theirs.discard(uri)
            self._release(client, uri)
            if uri in self._tells:
                self._refused.add(uri)
            self._complain("Subscription to a resource refused by the server %r (%d)", problem.code)
        except BaseException:
            self._theirs.discard(uri)
            self._release(client, uri)
            raise

    def _release(self, client: Client, uri: str) -> bool:
        """Release one proxy's subscription; return True if it was the last."""
        held = _HELD.get(client, Counter[str]())
        held[uri] -= 1
        if held[uri] > 0:
            return False
        del held[uri]
        return True

    def _move(self, client: Client | None) -> None:
        """Switch to another connection."""
        self._unlisten()
        if self._on is not None:
            for uri in self._theirs:
                self._release(self._on, uri)
        self._theirs.clear()
        self._refused.clear()
        self._on = client
        self._unlisten = _nothing if client is None else client.on_resource_updated(self._hear)

    def _hear(self, uri: str) -> None:
        """Notify subscribers of a resource, or of the resource that contains it."""
        if len(uri) <= MAX_LENGTH:
            for under in covering(uri):
                if under in self._tells:
                    self._tell(under)

    def _tell(self, uri: str) -> None:
        if uri in self._resting:
            self._resting[uri] = True
            return
        self._resting[uri] = False
        asyncio.get_running_loop().call_later(REST, self._rested, uri, context=contextvars.Context())
        for tell in list(self._tells[uri].values()):
            tell()

    def _rested(self, uri: str) -> None:
        if self._resting.pop(uri) and uri in self._tells:
            self._tell(uri)

    def _complain(self, what: str, *about: Any) -> None:
        """Log a warning, once until the next success."""
        if not self._complained:
            self._complained = True
            logger.warning(what, self._name, *about)


def _declares(client: Client) -> bool:
    """Return True if the remote server supports subscriptions."""
    return bool(getattr(getattr(client.capabilities, "resources", None), "subscribe", None))


def _nothing() -> None:
    pass
