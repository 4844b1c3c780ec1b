"""Sessions of the handshake era: rows that every worker sees, and what this process knows of them.

A request of a session that was checked less than TRUST seconds ago costs a dictionary lookup. Then the row is
read again, into the same object, because calls in flight and questions that wait for an answer hang on it. So a
session that ends in another process is noticed here within TRUST seconds, or at once when it ends in this one.
"""

import asyncio
import contextvars
import itertools
import logging
import threading
import weakref
from collections.abc import Collection
from datetime import timedelta
from time import monotonic
from typing import Any

from django.db import Error
from django.utils import timezone

from ..conf import get_settings
from ..conf.options import Limits
from ..models import Session as SessionRow
from ..models.session import Cap, SlotContention, TooManySessions
from ..protocol import jsonrpc
from ..protocol.errors import InvalidParams
from ..protocol.revisions import REVISIONS, Revision
from ..server.ports import Executor, Overloaded
from ..server.session import Session
from ..signals import session_closed, session_opened

logger = logging.getLogger("mcp_django.sessions")

TRUST = 10.0
"""Seconds for which a row that was read is believed."""
TOUCH_EVERY = 60.0
"""Seconds between two writes of `last_seen`."""
REAP_EVERY = 60.0
"""Seconds between two looks for expired sessions."""
REAP_SLICE, REAP_SLICES = 200, 5
KEEP_ENDED = timedelta(days=1)
"""How long ended sessions stay to be looked at in the admin."""
MOST_ENDED = 10_000
"""How many of them, at most: whoever opens and ends sessions all day must not fill the database."""
REAP_AFTER = REAP_SLICE * REAP_SLICES // 2
"""Sessions opened since the last look after which it is time for the next: half of what one can delete."""
MOST_KNOWN = 10_000
"""Sessions this process remembers; those that are serving a call come on top."""
KEY_LENGTH = 128
"""Characters of a session id that is worth looking up; ours have 32."""
LOCAL_OWNER = "local"
"""The key of the local principal: many clients of one machine, so without a quota."""


class _Known:
    """What this process knows of a session."""

    __slots__ = ("__weakref__", "alarm", "fresh_until", "hash", "log_level", "loop", "session", "writes")

    def __init__(self, session: Session, key_hash: str) -> None:
        self.session, self.hash = session, key_hash
        self.loop = asyncio.get_running_loop()
        self.log_level = session.log_level
        """The row's."""
        self.writes = 0
        """Grows around every write, so that a read that crossed one is not taken for news."""
        self.fresh_until = 0.0
        self.alarm: asyncio.TimerHandle | None = None
        """When to look whether it is serving a call."""


class DatabaseSessions:
    """`ports.SessionStore` on the Session model.

    Its SQL runs through `executor`. `server` is the alias whose sessions it knows; None: those of every server.
    """

    def __init__(self, executor: Executor, *, server: str | None = None) -> None:
        self._executor, self._server = executor, server
        self._known: dict[str, _Known] = {}
        self._keys: dict[str, str] = {}
        self._lock = threading.Lock()
        self._endings = 0
        self._next_reap = 0.0
        self._opened = 0
        self._touch_every = TOUCH_EVERY
        self._tasks: set[asyncio.Task[None]] = set()
        session_closed.connect(self._on_closed, sender=SessionRow)

    def peek(self, key: str, owner: str) -> Session | None:
        """The session, if its row was read less than TRUST seconds ago; no I/O. A foreign owner's session is none.

        Before `initialized` it is None: another worker may hear that word, and until then questions are forbidden
        here.
        """
        known = self._known.get(key)
        if known is None or known.fresh_until <= monotonic():
            return None
        session = known.session
        return session if session.owner == owner else None

    async def load(self, key: str, owner: str) -> Session | None:
        """The session, or None when it is unknown, foreign, ended or expired."""
        if len(key) > KEY_LENGTH:
            return None
        limits, key_hash, owner_name = self._limits(), SessionRow.hash(key), SessionRow.owner_name(owner)
        while True:
            known, endings = self._known.get(key), self._endings
            mine = known is not None and known.session.owner == owner
            writes = known.writes if known is not None else 0
            busy = known is not None and mine and bool(known.session.in_flight)
            row = await self._executor.run(self._find, key_hash, owner_name, limits, busy=busy)
            if row is None:
                if mine:
                    self._forget(key_hash)
                return None
            # A session may have ended after its row was read; then it must not be remembered as live.
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
        """A new session. An owner at the quota loses the session that was idle longest.

        Raises Overloaded when the server has `MCP["LIMITS"]["SESSIONS"]` already, and InvalidParams when the client
        says more about itself than is worth keeping.
        """
        limits, now = self._limits(), timezone.now()
        if len(jsonrpc.dumps([client_info, capabilities])) > limits.client_bytes:
            raise InvalidParams(f"clientInfo and capabilities may have {limits.client_bytes} bytes together")
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
        due = monotonic() >= self._next_reap or self._opened >= REAP_AFTER
        if due:
            self._next_reap, self._opened = monotonic() + REAP_EVERY, 0
        quota = None if owner == LOCAL_OWNER else limits.sessions_per_owner
        await self._executor.run(self._insert, row, limits, quota=quota, reap=due)
        session = self._remember(row, key, owner, 0)
        if session is None:
            raise LookupError(f"{revision!r} is not a revision that can be looked up again")
        return session

    async def save(self, session: Session) -> None:
        """Write the log level and whether the client has said `initialized`, where they changed here."""
        known = self._known.get(session.key)
        level = session.log_level
        changes: dict[str, Any] = {"initialized": True} if session.initialized else {}
        if known is None or known.log_level != level:
            changes["log_level"] = level or ""
        if not changes:
            return
        if known is not None:
            known.writes += 1
        await self._executor.run(_update, SessionRow.hash(session.key), changes)
        if known is not None:
            known.writes += 1
            known.log_level = level
            if session.initialized:
                known.fresh_until = max(known.fresh_until, monotonic() + TRUST)
                self._watch(known)

    async def end(self, session: Session, reason: str) -> None:
        """End it here at once and in the database, with the calls it has in flight here.

        Other workers refuse it within TRUST seconds; a call that is running there is cancelled when it next
        touches the row.
        """
        key_hash = SessionRow.hash(session.key)
        self._forget(key_hash)
        session.cancel_all()
        await self._executor.run(_end, key_hash, reason)

    def touch(self, session: Session) -> None:
        """It was used just now. Writes at most once a minute, in a task of its own."""
        now = monotonic()
        if now - session.touched >= self._touch_every:
            session.touched = now
            # In a clean context: the caller's may name a thread that ends with its request.
            task = asyncio.get_running_loop().create_task(self._write_touch(session), context=contextvars.Context())
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _write_touch(self, session: Session) -> None:
        key_hash = SessionRow.hash(session.key)
        try:
            alive = await self._executor.run(_touch, key_hash, self._touch_every)
        except (Error, Overloaded):
            logger.warning("The time a session was last used could not be written", exc_info=True)
            alive = True
        if not alive:
            self._forget(key_hash)

    def _watch(self, known: _Known) -> None:
        """See to it that a call which takes long keeps its session alive without any further message."""
        loop = asyncio.get_running_loop()
        if known.loop is not loop and not known.session.in_flight:
            # Under WSGI every request has a loop of its own, and an alarm ends with its loop.
            known.loop, known.alarm = loop, None
        if known.alarm is None:
            # By a weak reference, so that a session that ends is gone at once and not when its alarm is due.
            alarm = loop.call_later(self._touch_every, self._look, weakref.ref(known), context=contextvars.Context())
            known.alarm = alarm

    def _look(self, remembered: "weakref.ref[_Known]") -> None:
        known = remembered()
        if known is None:
            return
        known.alarm = None
        session = known.session
        if self._known.get(session.key) is not known:
            return
        if session.in_flight:
            self.touch(session)
        # While the session is trusted a call can begin without the row being read, which would set the next alarm.
        if session.in_flight or known.fresh_until > monotonic():
            self._watch(known)

    def _limits(self) -> Limits:
        limits = get_settings().limits
        self._touch_every = min(TOUCH_EVERY, limits.session_idle / 4)
        return limits

    def _remember(self, row: SessionRow, key: str, owner: str, writes: int) -> Session | None:
        """The one Session object of this row in this process, up to date; None for a revision served no more."""
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
                known = _Known(session, row.key_hash)
            elif known.writes == writes:
                known.session.log_level = known.log_level = level
            # Popped and put back, it is the last in line for being dropped.
            self._known[key], self._keys[row.key_hash] = known, key
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
            for known in [known for known in oldest if not known.session.in_flight][:surplus]:
                del self._known[known.session.key], self._keys[known.hash]

    def _on_closed(self, *, session: SessionRow, **kwargs: Any) -> None:
        """An ending anywhere in this process: the admin, the quota, expiry. May come from any thread."""
        self._forget(session.key_hash)

    def _forget(self, key_hash: str) -> None:
        """The session is over: it is not known any more, and what it has in flight is cancelled."""
        with self._lock:
            self._endings += 1
            key = self._keys.pop(key_hash, None)
            known = None if key is None else self._known.pop(key, None)
        if known is not None and known.session.in_flight:
            known.session.cancel_all()

    def _busy(self) -> list[str]:
        with self._lock:
            return [known.hash for known in self._known.values() if known.session.in_flight]

    def _find(self, key_hash: str, owner: str, limits: Limits, *, busy: bool) -> SessionRow | None:
        row = SessionRow.objects.filter(key_hash=key_hash).first()
        if row is None or row.owner != owner or (self._server is not None and row.server != self._server):
            return None
        if not row.is_live(idle=limits.session_idle) and not (busy and row.terminated_at is None):
            return None
        # Under WSGI no task outlives its request, so the row must not depend on `touch` alone.
        if row.last_seen <= timezone.now() - timedelta(seconds=self._touch_every):
            SessionRow.objects.filter(pk=row.pk).touch(every=self._touch_every)
        return row

    def _insert(self, row: SessionRow, limits: Limits, *, quota: int | None, reap: bool) -> None:
        busy = self._busy()
        if reap:
            self._reap(busy, limits.session_idle)
            SessionRow.objects.recount(row.server, idle=limits.session_idle)
        try:
            SessionRow.objects.admit(row, quota=quota, cap=Cap(limits.sessions, limits.session_idle), spare=busy)
        except TooManySessions:
            raise Overloaded("There are too many sessions; try again later", retry_after=REAP_EVERY) from None
        except SlotContention:
            raise Overloaded("Too many sessions are being opened at once; try again", retry_after=1.0) from None
        session_opened.send_robust(sender=SessionRow, session=row)

    def _reap(self, busy: Collection[str], idle: float) -> None:
        if busy:
            SessionRow.objects.filter(key_hash__in=busy).touch(every=self._touch_every)
        keep = timezone.now() - KEEP_ENDED
        ended = SessionRow.objects.ended().order_by("-terminated_at").values_list("terminated_at", flat=True)
        keep = max([keep, *filter(None, ended[MOST_ENDED - 1 : MOST_ENDED])])
        for _slice in range(REAP_SLICES):
            reaped = SessionRow.objects.reap(idle=idle, spare=busy, most=REAP_SLICE)
            purged = SessionRow.objects.ended(before=keep).purge(most=REAP_SLICE)
            if max(reaped, purged) < REAP_SLICE:
                break


def _update(key_hash: str, changes: dict[str, Any]) -> None:
    SessionRow.objects.filter(key_hash=key_hash, terminated_at=None).update(**changes)


def _end(key_hash: str, reason: str) -> None:
    SessionRow.objects.filter(key_hash=key_hash).end(reason)


def _touch(key_hash: str, every: float) -> bool:
    """Touch the row; False when there is no live one."""
    row = SessionRow.objects.filter(key_hash=key_hash, terminated_at=None)
    return bool(row.touch(every=every)) or row.exists()


def _storable(value: Any) -> Any:
    """The JSON value without NUL characters, which PostgreSQL keeps in no text."""
    if isinstance(value, str):
        return value.replace("\0", "\N{REPLACEMENT CHARACTER}")
    if isinstance(value, dict):
        return {_storable(key): _storable(item) for key, item in value.items()}
    return [_storable(item) for item in value] if isinstance(value, list) else value
