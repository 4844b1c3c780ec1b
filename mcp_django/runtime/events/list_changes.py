"""Detection of changed lists, while a client subscribes.

Lists are those of tools, resources and prompts. Checked once a second: the version of the registry (code may register
at run time) and the versions of providers. An event contains the provider's version, so that each change is published
by one process only. Signals report changes of permissions (`notifications.permission_signals`). Other processes cache
permissions for some seconds, so the change is published again after all caches have expired.
"""

import asyncio
import contextvars
import logging
import secrets
from collections.abc import Awaitable, Callable, Collection
from hashlib import blake2b
from typing import Any

from mcp_django.runtime.events.event_log import Draft, Event
from mcp_django.runtime.events.follower import run_apart
from mcp_django.server.composition.provider import Provider
from mcp_django.server.ports import Executor
from mcp_django.server.server import Server

logger = logging.getLogger("mcp_django.events")

CHANGES = "changes:"
"""Prefix of the change topics of servers."""
KINDS = {"tools": ("tools",), "resources": ("resources", "templates"), "prompts": ("prompts",)}
"""Kinds of lists, and the registry's collections of each kind."""
COMPLAIN_EVERY = 60.0
"""Minimum seconds between two log records of failures."""
SPREAD = 2000
"""Maximum random delay in milliseconds between processes that publish a change."""

Publish = Callable[..., Awaitable[Any]]


class _Seen:
    """Lists of a server at the time of the last check."""

    __slots__ = ("collections", "provided", "version")

    def __init__(self, server: Server) -> None:
        self.version = server.registry.version
        self.collections = _collections(server)
        self.provided: list[str | None] | None = None


class ListWatch:
    """Change detector of one follower."""

    def __init__(
        self,
        publish: Publish,
        *,
        server: Callable[[str], Server],
        executor: Callable[[], Executor],
        forget_rights: Callable[[], None],
        settled_after: float,
    ) -> None:
        """Create the detector.

        `get_server` returns the server of an alias. Permission caches of all processes expire within `settle_seconds`.
        """
        self._publish, self._server, self._executor = publish, server, executor
        self._forget_rights, self._settled_after = forget_rights, settled_after
        self._seen: dict[str, _Seen] = {}
        self._heard: dict[str, str] = {}
        """Alias → provider versions that a process has published."""
        self._settling: dict[tuple[str, str, Any], asyncio.TimerHandle] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._reading: set[str] = set()
        self._quiet_until = 0.0

    def look(self, topics: Collection[str]) -> None:
        """Check the servers of the subscribed topics for changes. Call it on the loop."""
        aliases = {topic.removeprefix(CHANGES) for topic in topics if topic.startswith(CHANGES)}
        for alias in self._seen.keys() - aliases:
            del self._seen[alias]
        for alias in aliases:
            try:
                self._look_at(alias, self._server(alias))
            except Exception:
                self._complain("Failed to check the lists of server %r for changes", alias)

    def hear(self, event: Event) -> None:
        """Process a `list_changed` event. Call it on the loop."""
        alias, said = event.topic.removeprefix(CHANGES), event.payload
        version, rights = said.get("version"), said.get("rights")
        if version is not None:
            self._heard[alias] = version

        if rights is None:
            return
        key = alias, said["kind"], said.get("user")
        alarm = self._settling.pop(key, None)
        if alarm is not None:
            alarm.cancel()

        if rights == "changed":
            self._forget_rights()
            later = self._settled_after + secrets.randbelow(SPREAD) / 1000
            loop = asyncio.get_running_loop()
            self._settling[key] = loop.call_later(later, self._settle, key, context=contextvars.Context())

    def close(self) -> None:
        """Cancel the timers and discard the snapshots, because the follower stops."""
        for alarm in self._settling.values():
            alarm.cancel()
        self._settling.clear()
        self._seen.clear()

    def _settle(self, key: tuple[str, str, Any]) -> None:
        alias, kind, user = key
        del self._settling[key]
        said = {"kind": kind, "rights": "settled"}
        self._begin(self._say(alias, said if user is None else {**said, "user": user}))

    def _look_at(self, alias: str, server: Server) -> None:
        seen = self._seen.get(alias)
        if seen is None:
            seen = self._seen[alias] = _Seen(server)
        elif seen.version != server.registry.version:
            before, seen.version, seen.collections = seen.collections, server.registry.version, _collections(server)
            changed = [kind for kind in KINDS if before[kind] != seen.collections[kind]]
            self._begin(self._say(alias, *({"kind": kind} for kind in changed)))
        if alias not in self._reading and any(provider.is_watched for provider in server.providers):
            self._reading.add(alias)
            self._begin(self._look_at_providers(alias, server, seen))

    async def _look_at_providers(self, alias: str, server: Server, seen: _Seen) -> None:
        watched = [provider for provider in server.providers if provider.is_watched]
        try:
            for provider in watched:
                provider.look()
            # Reading a version may query the database.
            found = await run_apart(self._executor(), _versions, watched)
        finally:
            self._reading.discard(alias)

        known = seen.provided
        are_others = known is not None and len(known) != len(found)
        before: list[str | None] = [None] * len(found) if known is None or are_others else known
        # An unknown version counts as unchanged.
        seen.provided = [old if new is None else new for old, new in zip(before, found, strict=True)]
        version = _word(seen.provided)
        pairs = zip(watched, before, seen.provided, strict=True)
        changed = {
            name for one, old, new in pairs if are_others or (old is not None and old != new) for name in one.offers
        }

        if changed and self._heard.get(alias) != version:
            await self._say(alias, *({"kind": kind, "version": version} for kind in KINDS if kind in changed))

    async def _say(self, alias: str, *payloads: dict[str, Any]) -> None:
        await self._publish(*(Draft(f"{CHANGES}{alias}", "list_changed", payload) for payload in payloads))

    def _begin(self, work: Any) -> None:
        task = asyncio.get_running_loop().create_task(self._guarded(work), context=contextvars.Context())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _guarded(self, work: Awaitable[None]) -> None:
        try:
            await work
        except Exception:
            self._complain("Failed to detect or publish a list change")

    def _complain(self, what: str, *about: str) -> None:
        """Log the current exception, at most once a minute."""
        now = asyncio.get_running_loop().time()
        if now >= self._quiet_until:
            self._quiet_until = now + COMPLAIN_EVERY
            logger.exception(what, *about)


def _collections(server: Server) -> dict[str, tuple[Any, ...]]:
    registry = server.registry
    return {kind: tuple(item for name in names for item in getattr(registry, name)) for kind, names in KINDS.items()}


def _versions(providers: list[Provider]) -> list[str | None]:
    """Return the versions in a form that is equal in all processes."""
    return [None if (version := provider.version) is None else repr(version) for provider in providers]


def _word(versions: list[str | None]) -> str:
    """Return a digest of all versions."""
    return blake2b(repr(versions).encode(), digest_size=8).hexdigest()
