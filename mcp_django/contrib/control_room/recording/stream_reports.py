"""Reports of the open streams of clients without a session (`subscriptions/listen`).

A stream may be open for days, so its row is written once, and deleted at its end. An administrator ends a stream by a
mark on its row, in any process.
"""

import secrets
from datetime import UTC, datetime
from heapq import nsmallest
from time import perf_counter, time

from mcp_django import wiring
from mcp_django.aio.loop_local import Loop
from mcp_django.contrib.control_room.models import KEY_CHARACTERS, ReportedStream
from mcp_django.contrib.control_room.recording.entries import get_client_label, get_user_key
from mcp_django.extensions.event_loop import call_threadsafe
from mcp_django.server.subscriptions.listen import Subscription

MAX_REPORTED_STREAMS = 200
"""Maximum streams that a process reports, the oldest first."""
REPORT_SECONDS = 5.0
"""Seconds between two reports of the streams."""


class StreamReporter:
    """Reporter of the streams of one process. One thread uses it."""

    def __init__(self, process: str) -> None:
        self.process = process
        self.count = 0
        """Number of open streams at the last report."""
        self._keys: dict[Subscription, str] = {}
        """Keys of the rows that this process has written."""
        self._reported_at = 0.0

    def report(self, alias: str) -> None:
        """Write new streams, delete those that ended, and end the marked ones.

        A call within `REPORT_SECONDS` of the last report does nothing. Raises `Error`.
        """
        if time() - self._reported_at < REPORT_SECONDS:
            return
        found = _find_streams()
        shown = nsmallest(MAX_REPORTED_STREAMS, found, key=lambda stream: stream.call.started_at)
        keys = {stream: self._keys.get(stream) or secrets.token_hex(16) for stream in shown}
        rows = ReportedStream.objects.using(alias)
        new = [self._build_row(stream, key) for stream, key in keys.items() if stream not in self._keys]
        rows.bulk_create(new, ignore_conflicts=True)
        ended = [key for stream, key in self._keys.items() if stream not in keys]
        if ended:
            rows.filter(key__in=ended).delete()
        self._keys = keys
        self.count = len(found)
        self._reported_at = time()
        if keys:
            marked = set(rows.filter(process=self.process, ended__isnull=False).values_list("key", flat=True))
            for stream, key in keys.items():
                if key in marked:
                    call_threadsafe(found[stream], stream.close)

    def remove(self, alias: str) -> None:
        """Delete the rows of this process, because it ends. Raises `Error`."""
        if self._reported_at:
            ReportedStream.objects.using(alias).filter(process=self.process).delete()
        self._keys.clear()
        self.count = 0
        self._reported_at = 0.0

    def _build_row(self, stream: Subscription, key: str) -> ReportedStream:
        call = stream.call
        return ReportedStream(
            key=key,
            process=self.process,
            started=datetime.fromtimestamp(time() - (perf_counter() - call.started_at), UTC),
            server=call.server.alias,
            principal=call.principal.key[:KEY_CHARACTERS],
            user_key=get_user_key(call.principal),
            client=get_client_label(call.client_info),
            revision=call.revision.version,
            lists=",".join(stream.filter.lists),
            resources=len(stream.filter.uris),
            others=len(stream.filter.keys),
        )


def _find_streams() -> dict[Subscription, Loop]:
    """Return the open streams of all servers of this process, with their loops."""
    return {
        stream: loop
        for server in wiring.get_services().lifecycle.list_servers()
        for loop, stream in server.subscriptions.list_started()
    }
