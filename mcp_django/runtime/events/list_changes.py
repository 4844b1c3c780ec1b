"""Detection of changed lists, while a client subscribes.

Lists are those of tools, resources and prompts. Checked once a second: the version of the registry (code may register
at run time) and the versions of providers. An event contains the provider's version, so that each change is published
by one process only. Signals report changes of permissions (`notifications.access_signals`). Other processes cache
permissions for some seconds, so the change is published again after all caches have expired.
"""

import asyncio
import logging
import secrets
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any

from mcp_django.aio.tasks import BackgroundTasks, start_timer
from mcp_django.logs.records import RateLimitedLogger
from mcp_django.protocol.log_text import get_logger
from mcp_django.runtime.events.event_log import CHANGES_TOPIC_PREFIX, Event, EventDraft, changes_topic
from mcp_django.runtime.threads.executor import run_on_own_thread
from mcp_django.server.composition.provider import Provider
from mcp_django.server.server import Server

logger = get_logger("mcp_django.events")

LIST_COLLECTIONS = {"tools": ("tools",), "resources": ("resources", "templates"), "prompts": ("prompts",)}
"""Kinds of lists, and the registry's collections of each kind."""
MAX_JITTER_MILLISECONDS = 2000
"""Maximum random delay in milliseconds between processes that publish a change."""

PublishFunction = Callable[..., Awaitable[Any]]


@dataclass(slots=True)
class _ServerSnapshot:
    """Lists of a server at the time of the last check."""

    registry_version: int
    collections: dict[str, tuple[Any, ...]]
    provider_versions: list[str | None] | None = None


@dataclass(eq=False, repr=False)
class ListChangeDetector:
    """Change detector of one follower."""

    publish: PublishFunction
    get_server: Callable[[str], Server]
    """Function that returns the server of an alias."""
    clear_permission_caches: Callable[[], None]
    settle_seconds: float
    """Seconds within which the permission caches of all processes expire."""

    _snapshots: dict[str, _ServerSnapshot] = field(default_factory=dict)
    _published_versions: dict[str, str] = field(default_factory=dict)
    """Alias → provider versions that a process has published."""
    _settle_timers: dict[tuple[str, str, Any], asyncio.TimerHandle] = field(default_factory=dict)
    _tasks: BackgroundTasks = field(default_factory=BackgroundTasks)
    _checking: set[str] = field(default_factory=set)
    _failure_logger: RateLimitedLogger = field(default_factory=lambda: RateLimitedLogger(logger))

    def check(self, topics: Collection[str]) -> None:
        """Check the servers of the subscribed topics for changes. Call it on the loop."""
        aliases = {
            topic.removeprefix(CHANGES_TOPIC_PREFIX) for topic in topics if topic.startswith(CHANGES_TOPIC_PREFIX)
        }
        for alias in self._snapshots.keys() - aliases:
            del self._snapshots[alias]
        for alias in aliases:
            try:
                self._check_server(alias, self.get_server(alias))
            except Exception:
                self._log_failure("Failed to check the lists of server %r for changes", alias)

    def on_list_changed(self, event: Event) -> None:
        """Process a `list_changed` event. Call it on the loop."""
        alias, payload = event.topic.removeprefix(CHANGES_TOPIC_PREFIX), event.payload
        version, permission_state = payload.get("version"), payload.get("rights")
        if version is not None:
            self._published_versions[alias] = version

        if permission_state is None:
            return
        key = alias, payload["kind"], payload.get("user")
        timer = self._settle_timers.pop(key, None)
        if timer is not None:
            timer.cancel()

        if permission_state == "changed":
            self.clear_permission_caches()
            delay = self.settle_seconds + secrets.randbelow(MAX_JITTER_MILLISECONDS) / 1000
            self._settle_timers[key] = start_timer(delay, self._publish_settled, key)

    def close(self) -> None:
        """Cancel the timers and discard the snapshots, because the follower stops."""
        for timer in self._settle_timers.values():
            timer.cancel()
        self._settle_timers.clear()
        self._snapshots.clear()

    def _publish_settled(self, key: tuple[str, str, Any]) -> None:
        alias, kind, user = key
        del self._settle_timers[key]
        payload = {"kind": kind, "rights": "settled"}
        self._spawn(self._publish_changes(alias, payload if user is None else {**payload, "user": user}))

    def _check_server(self, alias: str, server: Server) -> None:
        snapshot = self._snapshots.get(alias)
        if snapshot is None:
            snapshot = self._snapshots[alias] = _ServerSnapshot(server.registry.version, _get_collections(server))
        elif snapshot.registry_version != server.registry.version:
            before = snapshot.collections
            snapshot.registry_version = server.registry.version
            snapshot.collections = _get_collections(server)
            changed = [kind for kind in LIST_COLLECTIONS if before[kind] != snapshot.collections[kind]]
            self._spawn(self._publish_changes(alias, *({"kind": kind} for kind in changed)))
        if alias not in self._checking and any(provider.has_version for provider in server.providers):
            self._checking.add(alias)
            self._spawn(self._check_providers(alias, server, snapshot))

    async def _check_providers(self, alias: str, server: Server, snapshot: _ServerSnapshot) -> None:
        watched = [provider for provider in server.providers if provider.has_version]
        try:
            for provider in watched:
                provider.refresh()
            # Reading a version may query the database.
            current_versions = await run_on_own_thread(server.ports.executor, _read_versions, watched)
        finally:
            self._checking.discard(alias)

        known_versions = snapshot.provider_versions
        is_count_changed = known_versions is not None and len(known_versions) != len(current_versions)
        previous_versions: list[str | None] = (
            [None] * len(current_versions) if known_versions is None or is_count_changed else known_versions
        )
        # An unknown version counts as unchanged.
        snapshot.provider_versions = [
            old if new is None else new for old, new in zip(previous_versions, current_versions, strict=True)
        ]
        version = _hash_versions(snapshot.provider_versions)
        pairs = zip(watched, previous_versions, snapshot.provider_versions, strict=True)
        changed = {
            name
            for watched_provider, old, new in pairs
            if is_count_changed or (old is not None and old != new)
            for name in watched_provider.offers
        }

        if changed and self._published_versions.get(alias) != version:
            await self._publish_changes(
                alias, *({"kind": kind, "version": version} for kind in LIST_COLLECTIONS if kind in changed)
            )

    async def _publish_changes(self, alias: str, *payloads: dict[str, Any]) -> None:
        await self.publish(*(EventDraft(changes_topic(alias), "list_changed", payload) for payload in payloads))

    def _spawn(self, coroutine: Any) -> None:
        self._tasks.spawn(self._run_logged(coroutine))

    async def _run_logged(self, coroutine: Awaitable[None]) -> None:
        try:
            await coroutine
        except Exception:
            self._log_failure("Failed to detect or publish a list change")

    def _log_failure(self, message: str, *args: str) -> None:
        """Log the current exception, at most once a minute."""
        self._failure_logger.log(logging.ERROR, message, *args, exc_info=True)


def _get_collections(server: Server) -> dict[str, tuple[Any, ...]]:
    registry = server.registry
    return {
        kind: tuple(item for name in names for item in getattr(registry, name))
        for kind, names in LIST_COLLECTIONS.items()
    }


def _read_versions(providers: list[Provider]) -> list[str | None]:
    """Return the versions in a form that is equal in all processes."""
    return [None if (version := provider.version) is None else repr(version) for provider in providers]


def _hash_versions(versions: list[str | None]) -> str:
    """Return a digest of all versions."""
    return blake2b(repr(versions).encode(), digest_size=8).hexdigest()
