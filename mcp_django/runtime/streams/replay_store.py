"""Store of the replay buffers of one event loop, with retention after the call."""

import asyncio
import secrets
from collections import OrderedDict
from collections.abc import Callable
from typing import Any, NamedTuple

from mcp_django.aio.clock import monotonic
from mcp_django.runtime.streams.replay_buffer import ReplayBuffer, ReplayLimits
from mcp_django.server.calls.session import ServerSession

MAX_KEPT_STREAMS, MAX_KEPT_BYTES = 1000, 64 * 1024 * 1024
"""Maximum number and bytes of streams kept per event loop after their calls."""
MAX_KEPT_STREAMS_PER_SESSION = 64
"""Maximum number of kept streams per session, so that it cannot displace others."""


class ReplayStore:
    """Replay buffers of one event loop, by session and token."""

    def __init__(self, on_empty: Callable[[], None]) -> None:
        """Create an empty store; `on_empty` is called when the last buffer is discarded."""
        self._on_empty = on_empty
        self._buffers: dict[tuple[Any, str], ReplayBuffer] = {}
        # Buffers of finished calls, in order of expiry.
        self._undelivered: OrderedDict[ReplayBuffer, _RetainedBuffer] = OrderedDict()
        self._delivered: OrderedDict[ReplayBuffer, _RetainedBuffer] = OrderedDict()
        self._kept_by_session: dict[Any, list[ReplayBuffer]] = {}
        self._size = 0
        self._timer: asyncio.TimerHandle | None = None
        self._timer_due = 0.0

    def __len__(self) -> int:
        return len(self._buffers)

    def open_stream(self, session: ServerSession, limits: ReplayLimits) -> ReplayBuffer:
        """Open a stream of a session with its first reader."""
        token = secrets.token_urlsafe(9)
        buffer = self._buffers[session.pk, token] = ReplayBuffer(session.pk, token, limits, self._keep_finished)
        buffer.attach(0)
        return buffer

    def find(self, session_pk: Any, token: str) -> ReplayBuffer | None:
        """Return the buffer of a session, given by primary key, or None."""
        return self._buffers.get((session_pk, token))

    def has_session(self, session_pk: Any) -> bool:
        """Return True if the session has a buffer here. Thread-safe."""
        return any(key[0] == session_pk for key in list(self._buffers))

    def list_kept(self) -> list[ReplayBuffer]:
        """Return the buffers of finished calls: first those that were not sent completely, then the newest."""
        return [*self._undelivered, *reversed(self._delivered)]

    def end_session(self, session_pk: Any) -> None:
        """Abort and discard the buffers of an ended session."""
        for buffer in [buffer for buffer in self._buffers.values() if buffer.session_pk == session_pk]:
            buffer.abort()
            buffer.detach_reader()
            self.discard(buffer)

    def discard(self, buffer: ReplayBuffer) -> None:
        """Discard a buffer; a current reader may continue."""
        self._remove_kept(buffer)
        buffer.on_end = None
        if self._buffers.pop((buffer.session_pk, buffer.token), None) is not None and not self._buffers:
            self._on_empty()

    def _remove_kept(self, buffer: ReplayBuffer) -> None:
        for retained in (self._undelivered, self._delivered):
            if buffer in retained:
                self._size -= retained.pop(buffer).size
                session_buffers = self._kept_by_session[buffer.session_pk]
                session_buffers.remove(buffer)
                if not session_buffers:
                    del self._kept_by_session[buffer.session_pk]

    def _keep_finished(self, buffer: ReplayBuffer) -> None:
        """Keep the buffer of a finished call, or update it after complete delivery."""
        if buffer.is_aborted:
            self.discard(buffer)
            return

        self._remove_kept(buffer)
        session_buffers = self._kept_by_session.setdefault(buffer.session_pk, [])
        session_buffers.append(buffer)
        if len(session_buffers) > MAX_KEPT_STREAMS_PER_SESSION:
            self.discard(session_buffers[0])

        retained = self._delivered if buffer.is_delivered else self._undelivered
        retained[buffer] = _RetainedBuffer(monotonic() + buffer.ttl, buffer.size)
        self._size += buffer.size
        self._sweep()

    def _sweep(self) -> None:
        """Discard expired buffers, then the oldest above the limits, delivered ones first."""
        now = monotonic()
        for retained in (self._delivered, self._undelivered):
            while retained:
                buffer, (expires, _) = next(iter(retained.items()))
                if (
                    expires > now
                    and self._size <= MAX_KEPT_BYTES
                    and len(self._delivered) + len(self._undelivered) <= MAX_KEPT_STREAMS
                ):
                    break
                self.discard(buffer)

        expiry_times = [
            next(iter(retained.values())).expires for retained in (self._delivered, self._undelivered) if retained
        ]
        if not expiry_times:
            return
        due = max(min(expiry_times), now + 1.0)
        if self._timer is not None and self._timer_due > due + 1.0:
            # Delivered buffers expire earlier than the ones kept before.
            self._timer.cancel()
            self._timer = None
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(due - now, self._on_timer)
            self._timer_due = due

    def _on_timer(self) -> None:
        self._timer = None
        self._sweep()


class _RetainedBuffer(NamedTuple):
    expires: float
    size: int
