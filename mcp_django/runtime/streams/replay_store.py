"""Which streams of calls an event loop remembers, and for how long when their calls are over."""

import asyncio
import secrets
from collections import OrderedDict
from collections.abc import Callable
from typing import Any, NamedTuple

from mcp_django.aio.clock import monotonic
from mcp_django.runtime.streams.replay_buffer import Bounds, Ring
from mcp_django.server.calls.session import Session

KEPT, KEPT_BYTES = 1000, 64 * 1024 * 1024
"""Streams of calls that are over which one event loop keeps for who comes back, and how many bytes of them."""
KEPT_EACH = 64
"""Those of one session among them, which so cannot push out what others have not heard."""


class Rings:
    """The streams of calls that one event loop remembers, by session and token."""

    def __init__(self, bounds: Callable[[], Bounds], on_empty: Callable[[], None]) -> None:
        """`on_empty` is called when nothing is remembered any more."""
        self._bounds, self._on_empty = bounds, on_empty
        self._rings: dict[tuple[Any, str], Ring] = {}
        # Of calls that are over: by the time until which they are kept, which is the order of the dict.
        self._unheard: OrderedDict[Ring, _Kept] = OrderedDict()
        self._heard: OrderedDict[Ring, _Kept] = OrderedDict()
        self._of_session: dict[Any, list[Ring]] = {}
        self._size = 0
        self._alarm: asyncio.TimerHandle | None = None
        self._alarm_at = 0.0

    def __len__(self) -> int:
        return len(self._rings)

    def open(self, session: Session) -> Ring:
        """A new stream of a session, with its first reader."""
        token = secrets.token_urlsafe(9)
        ring = self._rings[session.pk, token] = Ring(session.pk, token, self._bounds(), self._keep)
        ring.attach(0)
        return ring

    def find(self, session: Any, token: str) -> Ring | None:
        """The stream of the session with this primary key, if it is remembered."""
        return self._rings.get((session, token))

    def has(self, session: Any) -> bool:
        """Is any stream of the session with this primary key remembered? May be asked from any thread."""
        return any(key[0] == session for key in list(self._rings))

    def unheard(self) -> list[Ring]:
        """The streams of calls that are over whose end has not been sent to whom it is for."""
        return [ring for ring in (*self._unheard, *self._heard) if not ring.heard]

    def end(self, session: Any) -> None:
        """A session is over: nobody reads its streams any more."""
        for ring in [ring for ring in self._rings.values() if ring.session == session]:
            ring.cut()
            ring.replace()
            self.drop(ring)

    def drop(self, ring: Ring) -> None:
        """Forget a stream. Whoever reads it reads on."""
        self._unshelve(ring)
        ring.forget()
        if self._rings.pop((ring.session, ring.token), None) is not None and not self._rings:
            self._on_empty()

    def _unshelve(self, ring: Ring) -> None:
        for kept in (self._unheard, self._heard):
            if ring in kept:
                self._size -= kept.pop(ring).size
                mine = self._of_session[ring.session]
                mine.remove(ring)
                if not mine:
                    del self._of_session[ring.session]

    def _keep(self, ring: Ring) -> None:
        """Its call is over, or it has been heard to its end."""
        if ring.cut_off:
            self.drop(ring)
            return
        self._unshelve(ring)
        mine = self._of_session.setdefault(ring.session, [])
        mine.append(ring)
        if len(mine) > KEPT_EACH:
            self.drop(mine[0])
        kept = self._heard if ring.heard else self._unheard
        kept[ring] = _Kept(monotonic() + ring.ttl, ring.size)
        self._size += ring.size
        self._sweep()

    def _sweep(self) -> None:
        """Drop what has been kept long enough, and the oldest of what is too much: first what has been heard."""
        now = monotonic()
        for kept in (self._heard, self._unheard):
            while kept:
                ring, (until, _) = next(iter(kept.items()))
                if until > now and self._size <= KEPT_BYTES and len(self._heard) + len(self._unheard) <= KEPT:
                    break
                self.drop(ring)
        ends = [next(iter(kept.values())).until for kept in (self._heard, self._unheard) if kept]
        if not ends:
            return
        due = max(min(ends), now + 1.0)
        if self._alarm is not None and self._alarm_at > due + 1.0:
            # What was heard is kept for less long than what was there before it.
            self._alarm.cancel()
            self._alarm = None
        if self._alarm is None:
            self._alarm = asyncio.get_running_loop().call_later(due - now, self._on_alarm)
            self._alarm_at = due

    def _on_alarm(self) -> None:
        self._alarm = None
        self._sweep()


class _Kept(NamedTuple):
    until: float
    size: int
