"""Store of the replay buffers of one event loop, with retention after the call."""

import asyncio
import secrets
from collections import OrderedDict
from collections.abc import Callable
from typing import Any, NamedTuple

from mcp_django.aio.clock import monotonic
from mcp_django.runtime.streams.replay_buffer import Bounds, Ring
from mcp_django.server.calls.session import Session

KEPT, KEPT_BYTES = 1000, 64 * 1024 * 1024
"""Maximum number and bytes of streams kept per event loop after their calls."""
KEPT_EACH = 64
"""Maximum number of kept streams per session, so that it cannot displace others."""


class Rings:
    """Replay buffers of one event loop, by session and token."""

    def __init__(self, bounds: Callable[[], Bounds], on_empty: Callable[[], None]) -> None:
        """Create an empty store; `on_empty` is called when the last buffer is discarded."""
        self._bounds, self._on_empty = bounds, on_empty
        self._rings: dict[tuple[Any, str], Ring] = {}
        # Buffers of finished calls, in order of expiry.
        self._unheard: OrderedDict[Ring, _Kept] = OrderedDict()
        self._heard: OrderedDict[Ring, _Kept] = OrderedDict()
        self._of_session: dict[Any, list[Ring]] = {}
        self._size = 0
        self._alarm: asyncio.TimerHandle | None = None
        self._alarm_at = 0.0

    def __len__(self) -> int:
        return len(self._rings)

    def open(self, session: Session) -> Ring:
        """Open a stream of a session with its first reader."""
        token = secrets.token_urlsafe(9)
        ring = self._rings[session.pk, token] = Ring(session.pk, token, self._bounds(), self._keep)
        ring.attach(0)
        return ring

    def find(self, session: Any, token: str) -> Ring | None:
        """Return the buffer of a session, given by primary key, or None."""
        return self._rings.get((session, token))

    def has(self, session: Any) -> bool:
        """Return True if the session has a buffer here. Thread-safe."""
        return any(key[0] == session for key in list(self._rings))

    def unheard(self) -> list[Ring]:
        """Return the buffers of finished calls that were not sent completely."""
        return [ring for ring in (*self._unheard, *self._heard) if not ring.heard]

    def end(self, session: Any) -> None:
        """Abort and discard the buffers of an ended session."""
        for ring in [ring for ring in self._rings.values() if ring.session == session]:
            ring.cut()
            ring.replace()
            self.drop(ring)

    def drop(self, ring: Ring) -> None:
        """Discard a buffer; a current reader may continue."""
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
        """Keep the buffer of a finished call, or update it after complete delivery."""
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
        """Discard expired buffers, then the oldest above the limits, delivered ones first."""
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
            # Delivered buffers expire earlier than the ones kept before.
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
