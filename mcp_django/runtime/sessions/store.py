"""Session store of the handshake era: shared rows with a local cache.

A request costs a dictionary lookup if the session's row was read less than `TRUST_SECONDS` ago. Otherwise the row is
read into the same object, which running calls and pending requests refer to. The store subscribes to changes by other
processes (`InvalidationTopic`). Without a subscription (under WSGI, or if the log fails) it detects them within
`TRUST_SECONDS`.
"""

import asyncio
import itertools
import threading
import weakref
from contextlib import AbstractAsyncContextManager, nullcontext, suppress
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from django.db import Error
from django.utils import timezone

from mcp_django.aio.clock import monotonic
from mcp_django.aio.tasks import BackgroundTasks, start_timer
from mcp_django.conf import get_settings
from mcp_django.conf.options import Limits
from mcp_django.models import Session as SessionRow
from mcp_django.models.session import SessionLimit, SlotContention, TooManySessions
from mcp_django.protocol import jsonrpc
from mcp_django.protocol.errors import InvalidParams
from mcp_django.protocol.log_text import get_logger
from mcp_django.protocol.revisions import REVISIONS, Revision
from mcp_django.runtime.events.event_log import Event
from mcp_django.runtime.events.invalidation import InvalidationTopic
from mcp_django.runtime.events.publisher import EventPublisher
from mcp_django.runtime.sessions import expiry
from mcp_django.runtime.sessions.activity import SessionActivity, publish_activity
from mcp_django.runtime.sessions.events import CANCEL, ENDED, RENEWED, SESSIONS_TOPIC
from mcp_django.server.calls.session import ServerSession
from mcp_django.server.ports import Executor, Overloaded
from mcp_django.signals import session_closed, session_opened

logger = get_logger("mcp_django.sessions")

TRUST_SECONDS = 10.0
"""Seconds for which a row is trusted after it was read."""
TOUCH_INTERVAL_SECONDS = 60.0
"""Minimum seconds between two writes of `last_seen`."""
MAX_CANCELS_PER_MINUTE = 64
"""Maximum forwarded cancellations per minute and session, to protect the log."""
MAX_CACHED_SESSIONS = 10_000
"""Maximum number of cached sessions; busy sessions are kept in addition."""
MAX_CLIENT_INFO_BYTES = 64 * 1024
"""Maximum size of client information in `initialize`, in bytes of JSON, because the session stores it."""
MAX_KEY_CHARACTERS = 128
"""Maximum length of an accepted id in characters.

The keys of sessions have 32 characters; clients choose the ids of requests.
"""
LOCAL_OWNER = "local"
"""Key of the local principal: many clients, therefore without a session quota."""


@dataclass(slots=True, weakref_slot=True, eq=False, repr=False)
class CachedSession:
    """Cached session, around the Session that calls use; the store synchronizes access."""

    session: ServerSession
    key_hash: str
    log_level: str | None
    """Log level stored in the row."""
    is_opened_in_process: bool
    loop: asyncio.AbstractEventLoop = field(default_factory=asyncio.get_running_loop)
    write_count: int = 0
    """Counter that grows before and after each write, to detect outdated reads."""
    fresh_until: float = 0.0
    touch_timer: asyncio.TimerHandle | None = None
    """Timer of the next check for activity."""
    forwarded_cancels: tuple[float, int] = (0.0, 0)
    """Start of the current minute, and the number of cancellations forwarded in it."""


class DatabaseSessionStore:
    """Implementation of `ports.SessionStore` on the Session model.

    SQL runs through `executor`. `server` restricts the store to the sessions of one alias. Without a
    `publisher` it does not communicate with other processes.
    """

    def __init__(
        self,
        executor: Executor,
        *,
        server: str | None = None,
        publisher: EventPublisher | None = None,
    ) -> None:
        self._executor = executor
        self._server = server
        self._invalidation: InvalidationTopic | None = None
        if publisher is not None:
            self._invalidation = InvalidationTopic(
                publisher, SESSIONS_TOPIC, handler=self._on_event, is_needed=self._report_activity
            )
        self._has_reported_activity = False
        self._entries: dict[str, CachedSession] = {}
        self._keys_by_pk: dict[Any, str] = {}
        """Session keys by the primary keys of the cached rows."""
        self._lock = threading.Lock()
        self._ended_count = 0
        self._next_expiry = 0.0
        self._opened_count = 0
        self._touch_interval = TOUCH_INTERVAL_SECONDS
        self._tasks = BackgroundTasks()
        session_closed.connect(self._on_closed, sender=SessionRow)

    def peek(self, key: str, owner: str) -> ServerSession | None:
        """Return the cached session of this owner if it is fresh, without I/O.

        Returns None before `initialized`: another worker may receive that notification, and until then requests to the
        client are forbidden here.
        """
        entry = self._entries.get(key)
        if entry is None or entry.fresh_until <= monotonic():
            return None
        session = entry.session
        return session if session.owner == owner else None

    async def load(self, key: str, owner: str) -> ServerSession | None:
        """Return the session, or None if it is unknown, foreign, ended or expired."""
        if len(key) > MAX_KEY_CHARACTERS:
            return None
        limits, key_hash, owner_name = self._get_limits(), SessionRow.hash(key), SessionRow.encode_owner(owner)
        async with self._keep_subscribed():  # before the row is read, so that no end is missed
            while True:
                entry, ended_count = self._entries.get(key), self._ended_count
                owned = entry if entry is not None and entry.session.owner == owner else None
                write_count = entry.write_count if entry is not None else 0

                is_busy = owned is not None and owned.session.is_busy
                row = await self._executor.run(self._find_row, key_hash, owner_name, limits, is_busy=is_busy)
                if row is None:
                    if owned is not None:
                        self._discard(owned.session.pk)
                    return None
                # The session may have ended after its row was read; then it must not be cached as live.
                if ended_count == self._ended_count:
                    return self._cache_row(row, key, owner, write_count)

    async def open(
        self,
        *,
        owner: str,
        revision: Revision,
        client_info: dict[str, Any],
        capabilities: dict[str, Any],
        server: str,
        user_id: Any = None,
    ) -> ServerSession:
        """Open a session; above its quota the owner loses the longest idle session.

        Raises:
            Overloaded: the server has reached `MCP["LIMITS"]["SESSIONS"]`.
            InvalidParams: `client_info` and `capabilities` are too large.
        """
        limits, now = self._get_limits(), timezone.now()
        if len(jsonrpc.dumps([client_info, capabilities])) > MAX_CLIENT_INFO_BYTES:
            raise InvalidParams(
                f"clientInfo and capabilities exceed the limit of {MAX_CLIENT_INFO_BYTES} bytes together"
            )

        row = SessionRow(
            server=server,
            revision=revision.version,
            client_info=_remove_nul(client_info),
            client_capabilities=_remove_nul(capabilities),
            owner=SessionRow.encode_owner(owner),
            user_id=user_id,
            created=now,
            last_seen=now,
            expires=now + timedelta(seconds=limits.session_lifetime),
        )

        key = row.generate_key()
        self._opened_count += 1
        is_expiry_due = monotonic() >= self._next_expiry or self._opened_count >= expiry.MAX_OPENED_BETWEEN_RUNS
        if is_expiry_due:
            self._next_expiry = monotonic() + expiry.EXPIRY_INTERVAL_SECONDS
            self._opened_count = 0
        quota = None if owner == LOCAL_OWNER else limits.sessions_per_owner

        async with self._keep_subscribed():
            await self._executor.run(self._insert_row, row, limits, quota=quota, run_expiry=is_expiry_due)
            session = self._cache_row(row, key, owner, 0, is_opened_in_process=True)
        if session is None:
            raise LookupError(f"Cannot open a session: {revision!r} is missing in REVISIONS")
        return session

    async def save(self, session: ServerSession) -> None:
        """Write the changed log level and `initialized`; notify other processes."""
        entry = self._entries.get(session.key)
        level = session.log_level
        changes: dict[str, Any] = {"initialized": True} if session.initialized else {}
        if entry is None or entry.log_level != level:
            changes["log_level"] = level or ""

        if not changes:
            return

        if entry is not None:
            entry.write_count += 1
        async with self._keep_subscribed():  # other processes may trust the row from now on
            rows = SessionRow.objects.filter(key_hash=SessionRow.hash(session.key), terminated_at=None)
            await self._executor.run(rows.update, **changes)
            if entry is not None:
                entry.write_count += 1
                entry.log_level = level
                if session.initialized:
                    entry.fresh_until = max(entry.fresh_until, monotonic() + TRUST_SECONDS)
                    self._start_touch_timer(entry)
        # An uninitialized session is not trusted by any process, and is usually cached only where it was opened.
        if "log_level" in changes or entry is None or not entry.is_opened_in_process:
            await self._publish_event(RENEWED, session)

    async def end(self, session: ServerSession, reason: str) -> None:
        """End the session here at once, in the database and in other processes.

        Running calls are cancelled.
        """
        self._discard(session.pk)
        session.cancel_all()
        await self._executor.run(SessionRow.objects.filter(key_hash=SessionRow.hash(session.key)).end, reason)

    async def cancel(self, session: ServerSession, id: jsonrpc.Id) -> None:
        """Cancel the call with this id here, or forward it to other processes."""
        entry = self._entries.get(session.key)
        if session.cancel(id) or entry is None or (isinstance(id, str) and len(id) > MAX_KEY_CHARACTERS):
            return

        since, count = entry.forwarded_cancels
        if monotonic() - since >= 60:
            since, count = monotonic(), 0
        entry.forwarded_cancels = since, count + 1
        if count < MAX_CANCELS_PER_MINUTE:
            await self._publish_event(CANCEL, session, id=id)

    def _keep_subscribed(self) -> AbstractAsyncContextManager[None]:
        return nullcontext() if self._invalidation is None else self._invalidation.keep_subscribed()

    async def _publish_event(self, kind: str, session: ServerSession, **more: Any) -> None:
        if self._invalidation is not None:
            try:
                await self._invalidation.publish(kind, session=session.pk, **more)
            except (Error, Overloaded):
                logger.warning("Failed to notify other processes about a session", exc_info=True)

    def _on_event(self, event: Event) -> None:
        """Process an event about a session from this or another process."""
        payload = event.payload
        if event.kind == ENDED:
            self._discard(payload["session"])
            return
        entry = self._entries.get(self._keys_by_pk.get(payload["session"], ""))
        if entry is None:
            return
        if event.kind == CANCEL:
            entry.session.cancel(payload["id"])
        elif event.kind == RENEWED:
            entry.fresh_until = 0.0
            if entry.session.is_busy:
                self._tasks.spawn(self._reload(entry.session))

    async def _reload(self, session: ServerSession) -> None:
        with suppress(Error, Overloaded):  # the next request of the session reads the row
            await self.load(session.key, session.owner)

    def _report_activity(self) -> bool:
        """Report busy sessions; return True if the subscription is still needed.

        A report without sessions is sent once.
        """
        now = monotonic()
        with self._lock:
            entries = list(self._entries.values())
        busy_sessions = [entry.session for entry in entries if entry.session.is_busy]
        if self._invalidation is not None and (busy_sessions or self._has_reported_activity):
            self._has_reported_activity = bool(busy_sessions)
            activities = {
                session.pk: SessionActivity(len(session.in_flight), session.open_streams) for session in busy_sessions
            }
            self._tasks.spawn(publish_activity(self._invalidation.publisher, self._invalidation.sender_id, activities))
        return bool(busy_sessions) or any(entry.fresh_until > now for entry in entries)

    def touch(self, session: ServerSession) -> None:
        """Record the use of a session; writes at most once a minute, in a background task."""
        now = monotonic()
        if now - session.touched_at >= self._touch_interval:
            session.touched_at = now
            self._tasks.spawn(self._write_touch(session))

    async def _write_touch(self, session: ServerSession) -> None:
        try:
            key_hash = SessionRow.hash(session.key)
            is_live = await self._executor.run(expiry.touch_session, key_hash, min_interval=self._touch_interval)
        except (Error, Overloaded):
            logger.warning("Failed to write last_seen of a session", exc_info=True)
            is_live = True
        if not is_live:
            self._discard(session.pk)

    def _start_touch_timer(self, entry: CachedSession) -> None:
        """Keep a session alive during a long call or an idle stream."""
        loop = asyncio.get_running_loop()
        if entry.loop is not loop and not entry.session.is_busy:
            # Under WSGI each request has its own loop, and a timer ends with its loop.
            entry.loop, entry.touch_timer = loop, None
        if entry.touch_timer is None:
            # A weak reference frees an ended session at once instead of when its timer fires.
            entry.touch_timer = start_timer(self._touch_interval, self._on_touch_timer, weakref.ref(entry))

    def _on_touch_timer(self, reference: "weakref.ref[CachedSession]") -> None:
        entry = reference()
        if entry is None:
            return
        entry.touch_timer = None
        session = entry.session
        if self._entries.get(session.key) is not entry:
            return
        if session.is_busy:
            self.touch(session)
        # A trusted session can start a call without reading the row, which would start the timer.
        if session.is_busy or entry.fresh_until > monotonic():
            self._start_touch_timer(entry)

    def _get_limits(self) -> Limits:
        limits = get_settings().limits
        self._touch_interval = min(TOUCH_INTERVAL_SECONDS, limits.session_idle / 4)
        return limits

    def _cache_row(
        self, row: SessionRow, key: str, owner: str, write_count: int, *, is_opened_in_process: bool = False
    ) -> ServerSession | None:
        """Cache the session of a row; return None if its revision is unsupported."""
        revision = REVISIONS.get(row.revision)
        if revision is None:
            return None

        level = row.log_level or None
        with self._lock:
            entry = self._entries.pop(key, None)
            if entry is None:
                session = ServerSession(
                    key=key,
                    owner=owner,
                    revision=revision,
                    client_info=row.client_info,
                    client_capabilities=row.client_capabilities,
                    log_level=level,
                    pk=row.pk,
                    user_id=row.user_id,
                )
                entry = CachedSession(session, row.key_hash, level, is_opened_in_process)
            elif entry.write_count == write_count:
                entry.session.log_level = entry.log_level = level
            # Reinsert at the end, so that this entry is evicted last.
            self._entries[key] = entry
            self._keys_by_pk[row.pk] = key
            self._evict_surplus()

        session = entry.session
        session.initialized = session.initialized or row.initialized
        session.touched_at = monotonic() - (timezone.now() - row.last_seen).total_seconds()
        entry.fresh_until = monotonic() + TRUST_SECONDS if session.initialized else 0.0
        self._start_touch_timer(entry)
        return session

    def _evict_surplus(self) -> None:
        surplus = len(self._entries) - MAX_CACHED_SESSIONS
        if surplus > 0:
            oldest = itertools.islice(self._entries.values(), 64)
            for entry in [entry for entry in oldest if not entry.session.is_busy][:surplus]:
                del self._entries[entry.session.key], self._keys_by_pk[entry.session.pk]
                entry.session.discard()

    def _on_closed(self, *, session: SessionRow, **kwargs: Any) -> None:
        """Process a session end in this process: admin, quota, expiry. Thread-safe."""
        self._discard(session.pk)

    def _discard(self, pk: Any) -> None:
        """Discard an ended session from the cache and cancel its running calls."""
        with self._lock:
            self._ended_count += 1
            key = self._keys_by_pk.pop(pk, None)
            entry = None if key is None else self._entries.pop(key, None)
        if entry is not None:
            entry.session.cancel_all()
            entry.session.discard()

    def _find_row(self, key_hash: str, owner: str, limits: Limits, *, is_busy: bool) -> SessionRow | None:
        row = SessionRow.objects.filter(key_hash=key_hash).first()
        if row is None or row.owner != owner or (self._server is not None and row.server != self._server):
            return None
        if not row.is_live(idle=limits.session_idle) and not (is_busy and row.terminated_at is None):
            return None
        # Under WSGI no task outlives its request, so `touch` alone is not sufficient.
        if row.last_seen <= timezone.now() - timedelta(seconds=self._touch_interval):
            SessionRow.objects.filter(pk=row.pk).touch(min_interval=self._touch_interval)
        return row

    def _insert_row(self, row: SessionRow, limits: Limits, *, quota: int | None, run_expiry: bool) -> None:
        with self._lock:
            busy_hashes = [entry.key_hash for entry in self._entries.values() if entry.session.is_busy]
        if run_expiry:
            expiry.expire_sessions(
                busy_hashes, max_idle_seconds=limits.session_idle, touch_interval=self._touch_interval
            )
            SessionRow.objects.recount(row.server, idle=limits.session_idle)
        try:
            SessionRow.objects.admit(
                row, quota=quota, limit=SessionLimit(limits.sessions, limits.session_idle), busy_hashes=busy_hashes
            )
        except TooManySessions:
            raise Overloaded(
                "Too many sessions are open; try again later", retry_after=expiry.EXPIRY_INTERVAL_SECONDS
            ) from None
        except SlotContention:
            raise Overloaded("Too many sessions are being opened at once; try again", retry_after=1.0) from None
        session_opened.send_robust(sender=SessionRow, session=row)


def _remove_nul(value: Any) -> Any:
    """Return a JSON value without NUL characters, which PostgreSQL rejects in text."""
    if isinstance(value, str):
        return value.replace("\0", "\N{REPLACEMENT CHARACTER}")
    if isinstance(value, dict):
        return {_remove_nul(key): _remove_nul(item) for key, item in value.items()}
    return [_remove_nul(item) for item in value] if isinstance(value, list) else value
