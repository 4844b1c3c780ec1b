"""Open streams of clients without a session (`subscriptions/listen`), in all processes."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from django.utils import timezone
from django.utils.translation import gettext_lazy as _
from django.utils.translation import ngettext

from mcp_django.contrib.control_room.caller_credentials import CallerCredential, load_credentials
from mcp_django.contrib.control_room.models import ReportedStream, ServingProcess
from mcp_django.contrib.control_room.pages.callers import load_user_names
from mcp_django.contrib.control_room.recording.process_reports import is_silent
from mcp_django.contrib.control_room.recording.writer import get_alias
from mcp_django.contrib.control_room.templatetags.room_figures import figure

END_PERMISSION = "mcp_control_room.end_stream"
MAX_SHOWN_STREAMS = 50
LIST_LABELS = {
    "tools": _("list of tools"),
    "prompts": _("list of prompts"),
    "resources": _("list of resources"),
}


@dataclass(frozen=True, slots=True)
class StreamRow:
    """Open stream, as shown on the page."""

    stream: ReportedStream
    user: str
    """Name of the user, or the principal."""
    credential: CallerCredential | None

    @property
    def subjects(self) -> list[Any]:
        """Subjects whose changes the client gets, in words."""
        return list(self._iter_subjects())

    def _iter_subjects(self) -> Iterator[Any]:
        for kind in filter(None, self.stream.lists.split(",")):
            yield LIST_LABELS.get(kind, kind)
        if self.stream.resources:
            count = self.stream.resources
            yield ngettext("%s resource", "%s resources", count) % figure(count)
        if self.stream.others:
            count = self.stream.others
            yield ngettext("%s other subject", "%s other subjects", count) % figure(count)


@dataclass(frozen=True, slots=True)
class StreamList:
    """Streams that are open for the longest time, and the number of all."""

    rows: list[StreamRow]
    total: int

    @property
    def hidden(self) -> int:
        """Number of streams that the list lacks."""
        return self.total - len(self.rows)


def load_streams(server: str = "") -> StreamList:
    """Read the streams of all processes that report, on all servers or on one.

    Runs at most seven statements.
    """
    alias = get_alias()
    alive = [process for process in ServingProcess.objects.using(alias).all() if not is_silent(process)]
    streams = ReportedStream.objects.using(alias).filter(process__in=[process.name for process in alive])
    if server:
        streams = streams.filter(server=server)
    found = list(streams.order_by("started", "key")[:MAX_SHOWN_STREAMS])
    names = load_user_names(stream.user_key for stream in found)
    credentials = load_credentials(stream.principal for stream in found)
    rows = [
        StreamRow(
            stream,
            names.get(stream.user_key) or stream.user_key or stream.principal,
            credentials.get(stream.principal),
        )
        for stream in found
    ]
    if len(found) < MAX_SHOWN_STREAMS:
        return StreamList(rows, len(found))
    return StreamList(rows, streams.count() if server else sum(process.streams for process in alive))


def find_stream(key: str) -> ReportedStream | None:
    """Return an open stream that is not being ended; None without one."""
    return ReportedStream.objects.using(get_alias()).filter(key=key, ended=None).first()


def mark_ended(key: str) -> bool:
    """Let the process of a stream end it. Return False if it has ended meanwhile."""
    streams = ReportedStream.objects.using(get_alias()).filter(key=key, ended=None)
    return streams.update(ended=timezone.now()) > 0
