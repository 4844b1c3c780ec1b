"""Session store of the handshake era: shared rows with a local cache.

A request costs a dictionary lookup if the session's row was read less than `TRUST_SECONDS` ago. Otherwise the row is
read into the same object, which running calls and pending requests refer to. The store subscribes to changes by other
processes (`SessionInvalidation`). Without a subscription (under WSGI, or if the log fails) it detects them within
`TRUST_SECONDS`.
"""

import asyncio
import contextvars
import itertools
import logging
import threading
import weakref
from collections.abc import Callable, Coroutine
from contextlib import AbstractAsyncContextManager, nullcontext, suppress
from datetime import timedelta
from typing import Any

from django.db import Error
from django.utils import timezone

from mcp_django.aio.clock import monotonic
from mcp_django.conf import get_settings
from mcp_django.conf.options import Limits
from mcp_django.models import Session as SessionRow
from mcp_django.models.session import Cap, SlotContention, TooManySessions
from mcp_django.protocol import jsonrpc
from mcp_django.protocol.errors import InvalidParams
from mcp_django.protocol.revisions import REVISIONS, Revision
from mcp_django.runtime.events.event_log import Event
from mcp_django.runtime.events.publisher import Feeds
from mcp_django.runtime.sessions import expiry
from mcp_django.runtime.sessions.activity import Activity, Reports
from mcp_django.runtime.sessions.cache_entry import Known
from mcp_django.runtime.sessions.events import CANCEL, ENDED, RENEWED, SessionNews
from mcp_django.server.calls.session import Session
from mcp_django.server.ports import Executor, Overloaded
from mcp_django.signals import session_closed, session_opened

logger = logging.getLogger("mcp_django.sessions")

TRUST = 10.0
"""Seconds for which a row is trusted after it was read."""
TOUCH_EVERY = 60.0
"""Minimum seconds between two writes of `last_seen`."""
CANCELS = 64
"""Maximum forwarded cancellations per minute and session, to protect the log."""
MOST_KNOWN = 10_000
"""Maximum number of cached sessions; busy sessions are kept in addition."""
KEY_LENGTH = 128
"""Maximum length of an accepted id in characters.

The keys of sessions have 32 characters; clients choose the ids of requests.
"""
LOCAL_OWNER = "local"
"""Key of the local principal: many clients, therefore without a session quota."""


class DatabaseSessions:
    """Implementation of `ports.SessionStore` on the Session model.

    SQL runs through `executor`. `server` restricts the store to the sessions of one alias. `get_publisher` returns the
    event publisher; None disables communication with other processes.
    """

    def __init__(
        self, executor: Executor, *, server: str | None = None, feeds: Callable[[], Feeds] | None = None
    ) -> None:
        self._executor, self._server = executor, server
        self._news = None if feeds is None else SessionNews(feeds, self._hear, self._look_around)
        self._reports = None if feeds is None or self._news is None else Reports(feeds, self._news.name)
        self._known: dict[str, Known] = {}
        self._keys: dict[Any, str] = {}
        """Session keys by the primary keys of the cached rows."""
        self._lock = threading.Lock()
        self._endings = 0
        self._next_reap = 0.0
        self._opened = 0
        self._touch_every = TOUCH_EVERY
        self._tasks: set[asyncio.Task[None]] = set()
        session_closed.connect(self._on_closed, sender=SessionRow)

    def peek(self, key: str, owner: str) -> Session | None:
        """Return the cached session of this owner if it is fresh, without I/O.

        Returns None before `initialized`: another worker may receive that notification, and until then requests to the
        client are forbidden here.
        """
        known = self._known.get(key)
        if known is None or known.fresh_until <= monotonic():
            return None
        session = known.session
        return session if session.owner == owner else None

    async def load(self, key: str, owner: str) -> Session | None:
        """Return the session, or None if it is unknown, foreign, ended or expired."""
        if len(key) > KEY_LENGTH:
            return None
        limits, key_hash = self._limits(), SessionRow.hash(key)
        async with self._attending():  # before the row is read, so that no end is missed
            return await self._load(key, key_hash, owner, limits)

    async def _load(self, key: str, key_hash: str, owner: str, limits: Limits) -> Session | None:
        owner_name = SessionRow.owner_name(owner)
        while True:
            known, endings = self._known.get(key), self._endings
            mine = known is not None and known.session.owner == owner
            writes = known.writes if known is not None else 0

            busy = known is not None and mine and known.session.is_busy
            row = await self._executor.run(self._find, key_hash, owner_name, limits, busy=busy)
            if row is None:
                if mine and known is not None:
                    self._forget(known.session.pk)
                return None
            # The session may have ended after its row was read; then it must not be cached as live.
            if endings == self._endings:
                return self._remember(row, key, owner, writes)

    async def open(
        self,
        *,
        owner: str,
        revision: Revision,
        client_info: dict[str, Any],
        capabilities: dict[str, Any],
        server: str,
        user_id: Any = None,
    ) -> Session:
        """Open a session; above its quota the owner loses the longest idle session.

        Raises:
            Overloaded: the server has reached `MCP["LIMITS"]["SESSIONS"]`.
            InvalidParams: `client_info` and `capabilities` are too large.
        """
        limits, now = self._limits(), timezone.now()
        if len(jsonrpc.dumps([client_info, capabilities])) > limits.client_bytes:
            raise InvalidParams(f"clientInfo and capabilities exceed the limit of {limits.client_bytes} bytes together")

        row = SessionRow(
            server=server,
            revision=revision.version,
            client_info=_storable(client_info),
            client_capabilities=_storable(capabilities),
            owner=SessionRow.owner_name(owner),
            user_id=user_id,
            created=now,
            last_seen=now,
            expires=now + timedelta(seconds=limits.session_lifetime),
        )

        key = row.mint()
        self._opened += 1
        due = monotonic() >= self._next_reap or self._opened >= expiry.AFTER
        if due:
            self._next_reap, self._opened = monotonic() + expiry.EVERY, 0
        quota = None if owner == LOCAL_OWNER else limits.sessions_per_owner

        async with self._attending():
            await self._executor.run(self._insert, row, limits, quota=quota, reap=due)
            session = self._remember(row, key, owner, 0, opened_here=True)
        if session is None:
            raise LookupError(f"Cannot open a session: {revision!r} is missing in REVISIONS")
        return session

    async def save(self, session: Session) -> None:
        """Write the changed log level and `initialized`; notify other processes."""
        known = self._known.get(session.key)
        level = session.log_level
        changes: dict[str, Any] = {"initialized": True} if session.initialized else {}
        if known is None or known.log_level != level:
            changes["log_level"] = level or ""

        if not changes:
            return

        if known is not None:
            known.writes += 1
        async with self._attending():  # other processes may trust the row from now on
            await self._executor.run(_update, SessionRow.hash(session.key), changes)
            if known is not None:
                known.writes += 1
                known.log_level = level
                if session.initialized:
                    known.fresh_until = max(known.fresh_until, monotonic() + TRUST)
                    self._watch(known)
        # An uninitialized session is not trusted by any process, and is usually cached only where it was opened.
        if "log_level" in changes or known is None or not known.opened_here:
            await self._tell(RENEWED, session)

    async def end(self, session: Session, reason: str) -> None:
        """End the session here at once, in the database and in other processes.

        Running calls are cancelled.
        """
        self._forget(session.pk)
        session.cancel_all()
        await self._executor.run(_end, SessionRow.hash(session.key), reason)

    async def cancel(self, session: Session, id: jsonrpc.Id) -> None:
        """Cancel the call with this id here, or forward it to other processes."""
        known = self._known.get(session.key)
        if session.cancel(id) or known is None or (isinstance(id, str) and len(id) > KEY_LENGTH):
            return

        since, told = known.cancels
        if monotonic() - since >= 60:
            since, told = monotonic(), 0
        known.cancels = since, told + 1
        if told < CANCELS:
            await self._tell(CANCEL, session, id=id)

    def _attending(self) -> AbstractAsyncContextManager[None]:
        return nullcontext() if self._news is None else self._news.attended()

    async def _tell(self, kind: str, session: Session, **more: Any) -> None:
        if self._news is not None:
            try:
                await self._news.tell(kind, session=session.pk, **more)
            except (Error, Overloaded):
                logger.warning("Failed to notify other processes about a session", exc_info=True)

    def _hear(self, event: Event) -> None:
        """Process an event about a session from this or another process."""
        said = event.payload
        if event.kind == ENDED:
            self._forget(said["session"])
            return
        known = self._known.get(self._keys.get(said["session"], ""))
        if known is None:
            return
        if event.kind == CANCEL:
            known.session.cancel(said["id"])
        elif event.kind == RENEWED:
            known.fresh_until = 0.0
            if known.session.is_busy:
                self._in_background(self._renew(known.session))

    async def _renew(self, session: Session) -> None:
        with suppress(Error, Overloaded):  # the next request of the session reads the row
            await self.load(session.key, session.owner)

    def _look_around(self) -> bool:
        """Report busy sessions; return True if the subscription is still needed."""
        now = monotonic()
        with self._lock:
            known = list(self._known.values())
        busy = {one.session.pk: one.session for one in known if one.session.is_busy}
        if self._reports is not None:
            self._reports.say({pk: Activity(len(one.in_flight), one.streams) for pk, one in busy.items()})
        return bool(busy) or any(one.fresh_until > now for one in known)

    def touch(self, session: Session) -> None:
        """Record the use of a session; writes at most once a minute, in a background task."""
        now = monotonic()
        if now - session.touched >= self._touch_every:
            session.touched = now
            self._in_background(self._write_touch(session))

    def _in_background(self, work: Coroutine[Any, Any, Any]) -> None:
        # In a clean context: the caller's may refer to a thread that ends with its request.
        task = asyncio.get_running_loop().create_task(work, context=contextvars.Context())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _write_touch(self, session: Session) -> None:
        key_hash = SessionRow.hash(session.key)
        try:
            alive = await self._executor.run(_touch, key_hash, self._touch_every)
        except (Error, Overloaded):
            logger.warning("Failed to write last_seen of a session", exc_info=True)
            alive = True
        if not alive:
            self._forget(session.pk)

    def _watch(self, known: Known) -> None:
        """Keep a session alive during a long call or an idle stream."""
        loop = asyncio.get_running_loop()
        if known.loop is not loop and not known.session.is_busy:
            # Under WSGI each request has its own loop, and a timer ends with its loop.
            known.loop, known.alarm = loop, None
        if known.alarm is None:
            # A weak reference frees an ended session at once instead of when its timer fires.
            alarm = loop.call_later(self._touch_every, self._look, weakref.ref(known), context=contextvars.Context())
            known.alarm = alarm

    def _look(self, remembered: "weakref.ref[Known]") -> None:
        known = remembered()
        if known is None:
            return
        known.alarm = None
        session = known.session
        if self._known.get(session.key) is not known:
            return
        if session.is_busy:
            self.touch(session)
        # A trusted session can start a call without reading the row, which would start the timer.
        if session.is_busy or known.fresh_until > monotonic():
            self._watch(known)

    def _limits(self) -> Limits:
        limits = get_settings().limits
        self._touch_every = min(TOUCH_EVERY, limits.session_idle / 4)
        return limits

    def _remember(
        self, row: SessionRow, key: str, owner: str, writes: int, *, opened_here: bool = False
    ) -> Session | None:
        """Cache the session of a row; return None if its revision is unsupported."""
        revision = REVISIONS.get(row.revision)
        if revision is None:
            return None

        level = row.log_level or None
        with self._lock:
            known = self._known.pop(key, None)
            if known is None:
                session = Session(
                    key=key,
                    owner=owner,
                    revision=revision,
                    client_info=row.client_info,
                    client_capabilities=row.client_capabilities,
                    log_level=level,
                    pk=row.pk,
                    user_id=row.user_id,
                )
                known = Known(session, row.key_hash, opened_here=opened_here)
            elif known.writes == writes:
                known.session.log_level = known.log_level = level
            # Reinsert at the end, so that this entry is evicted last.
            self._known[key], self._keys[row.pk] = known, key
            self._drop_surplus()

        session = known.session
        session.initialized = session.initialized or row.initialized
        session.touched = monotonic() - (timezone.now() - row.last_seen).total_seconds()
        known.fresh_until = monotonic() + TRUST if session.initialized else 0.0
        self._watch(known)
        return session

    def _drop_surplus(self) -> None:
        surplus = len(self._known) - MOST_KNOWN
        if surplus > 0:
            oldest = itertools.islice(self._known.values(), 64)
            for known in [known for known in oldest if not known.session.is_busy][:surplus]:
                del self._known[known.session.key], self._keys[known.session.pk]
                known.session.leave()

    def _on_closed(self, *, session: SessionRow, **kwargs: Any) -> None:
        """Process a session end in this process: admin, quota, expiry. Thread-safe."""
        self._forget(session.pk)

    def _forget(self, pk: Any) -> None:
        """Discard an ended session from the cache and cancel its running calls."""
        with self._lock:
            self._endings += 1
            key = self._keys.pop(pk, None)
            known = None if key is None else self._known.pop(key, None)
        if known is not None:
            known.session.cancel_all()
            known.session.leave()

    def _busy(self) -> list[str]:
        with self._lock:
            return [known.hash for known in self._known.values() if known.session.is_busy]

    def _find(self, key_hash: str, owner: str, limits: Limits, *, busy: bool) -> SessionRow | None:
        row = SessionRow.objects.filter(key_hash=key_hash).first()
        if row is None or row.owner != owner or (self._server is not None and row.server != self._server):
            return None
        if not row.is_live(idle=limits.session_idle) and not (busy and row.terminated_at is None):
            return None
        # Under WSGI no task outlives its request, so `touch` alone is not sufficient.
        if row.last_seen <= timezone.now() - timedelta(seconds=self._touch_every):
            SessionRow.objects.filter(pk=row.pk).touch(every=self._touch_every)
        return row

    def _insert(self, row: SessionRow, limits: Limits, *, quota: int | None, reap: bool) -> None:
        busy = self._busy()
        if reap:
            expiry.reap(busy, idle=limits.session_idle, touch_every=self._touch_every)
            SessionRow.objects.recount(row.server, idle=limits.session_idle)
        try:
            SessionRow.objects.admit(row, quota=quota, cap=Cap(limits.sessions, limits.session_idle), spare=busy)
        except TooManySessions:
            raise Overloaded("Too many sessions are open; try again later", retry_after=expiry.EVERY) from None
        except SlotContention:
            raise Overloaded("Too many sessions are being opened at once; try again", retry_after=1.0) from None
        session_opened.send_robust(sender=SessionRow, session=row)


def _update(key_hash: str, changes: dict[str, Any]) -> None:
    SessionRow.objects.filter(key_hash=key_hash, terminated_at=None).update(**changes)


def _end(key_hash: str, reason: str) -> None:
    SessionRow.objects.filter(key_hash=key_hash).end(reason)


def _touch(key_hash: str, every: float) -> bool:
    """Touch the row; return False if no live row exists."""
    row = SessionRow.objects.filter(key_hash=key_hash, terminated_at=None)
    return bool(row.touch(every=every)) or row.exists()


def _storable(value: Any) -> Any:
    """Return a JSON value without NUL characters, which PostgreSQL rejects in text."""
    if isinstance(value, str):
        return value.replace("\0", "\N{REPLACEMENT CHARACTER}")
    if isinstance(value, dict):
        return {_storable(key): _storable(item) for key, item in value.items()}
    return [_storable(item) for item in value] if isinstance(value, list) else value
