"""Credential monitor: verify open streams again, and close the revoked ones.

A credential may be revoked, or lose scopes, while a stream is open.
"""

from typing import Protocol

from mcp_django.aio.clock import PeriodicVisitor
from mcp_django.aio.loop_local import LoopLocal
from mcp_django.aio.tasks import call_threadsafe, run_in_background
from mcp_django.auth.authentication.principal_cache import add_invalidation_callback
from mcp_django.protocol.log_text import get_logger

logger = get_logger("mcp_django.auth")

VERIFY_INTERVAL_SECONDS = 4.0
"""Seconds between two verifications of an open stream.

Verified credentials are cached for TOKEN_CACHE_SECONDS (ten by default). A stream therefore outlives its credential by
less than fifteen seconds.
"""


class RevocableCredential(Protocol):
    """A credential that can be verified again while a stream is open."""

    def is_known_valid(self) -> bool:
        """Return True if the cache proves that the credential is valid; never blocks.

        False means that it must be verified.
        """

    async def is_valid(self) -> bool:
        """Return True if the credential is valid now, or cannot be verified at the moment."""


class MonitoredStream(Protocol):
    """The part of a stream that the monitor uses."""

    credential: RevocableCredential | None
    """The credential to verify; None if the stream needs none."""

    def on_revoked(self) -> None:
        """End the stream because its credential has become invalid."""


class CredentialMonitor:
    """The monitored streams of one event loop."""

    def __init__(self) -> None:
        self._streams: PeriodicVisitor[MonitoredStream] = PeriodicVisitor(VERIFY_INTERVAL_SECONDS, _check_stream)
        self._check_requested = self._is_checking = False

    def __len__(self) -> int:
        return len(self._streams)

    def add(self, stream: MonitoredStream) -> None:
        """Monitor a stream, unless it has no credential."""
        if stream.credential is not None:
            self._streams.add(stream)

    def remove(self, stream: MonitoredStream) -> None:
        """Stop monitoring a stream. May be called more than once."""
        self._streams.remove(stream)

    def check_now(self) -> None:
        """Verify all streams now, after an invalidation of cached principals."""
        self._check_requested = True
        if not self._is_checking and len(self._streams):
            self._is_checking = True
            run_in_background(self._check_all())

    async def _check_all(self) -> None:
        """Verify the streams one by one, because there may be a thousand."""
        try:
            while self._check_requested:
                self._check_requested = False
                for stream in self._streams:
                    if stream.credential is not None and not stream.credential.is_known_valid():
                        await _verify(stream, stream.credential)
        finally:
            self._is_checking = False


_monitors = LoopLocal(CredentialMonitor)


def get_credential_monitor() -> CredentialMonitor:
    """Return the credential monitor of the running loop."""
    return _monitors.get()


def check_all_loops() -> None:
    """Make all loops of this process verify their streams now. Thread-safe."""
    for loop, monitor in _monitors.items():
        call_threadsafe(loop, monitor.check_now)


add_invalidation_callback(check_all_loops)


def _check_stream(stream: MonitoredStream) -> None:
    credential = stream.credential
    if credential is not None and not credential.is_known_valid():
        run_in_background(_verify(stream, credential))


async def _verify(stream: MonitoredStream, credential: RevocableCredential) -> None:
    try:
        if not await credential.is_valid():
            stream.on_revoked()
    except Exception:
        logger.exception("The credential of a stream could not be verified; it will be verified again")
