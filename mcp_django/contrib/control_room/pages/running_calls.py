"""Running calls of all processes, and the processes."""

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from django.utils import timezone
from django.utils.translation import gettext_lazy as _

from mcp_django.contrib.control_room.caller_credentials import CallerCredential, load_credentials
from mcp_django.contrib.control_room.models import Alert, LongCall, ServingProcess
from mcp_django.contrib.control_room.pages.callers import load_user_names
from mcp_django.contrib.control_room.pages.figures import CallTarget
from mcp_django.contrib.control_room.recording.process_reports import is_silent
from mcp_django.contrib.control_room.recording.writer import get_alias
from mcp_django.extensions.calls import REMOTE_PREFIX
from mcp_django.server.calls.outcome import THREAD

MAX_SHOWN_CALLS = 100
MAX_SHOWN_ALERTS = 10
MAX_PERCENT_VALUE_COUNT = 100
LATE_CANCELLATION = timedelta(seconds=10)
"""Time after which a call that still runs does not react to its cancellation."""
WAIT_LABELS = {
    "elicitation/create": _("an answer of the user"),
    "sampling/createMessage": _("the model of the client"),
    "roots/list": _("the roots of the client"),
    "ping": _("the client"),
    THREAD: _("a free thread"),
    "": _("nothing that is recorded: own code, SQL or a database connection"),
}


@dataclass(frozen=True, slots=True)
class RunningCallRow:
    """Running call, as shown on the page."""

    call: LongCall
    user: str
    """Name of the user, or the principal."""
    now: datetime
    credential: CallerCredential | None = None
    """Credential of the caller, if it still exists."""

    @property
    def target(self) -> CallTarget:
        """Server, method and name, which have a page."""
        return CallTarget(self.call.server, self.call.method, self.call.name)

    @property
    def milliseconds(self) -> float:
        """Time since the start."""
        return (self.now - self.call.started).total_seconds() * 1000

    @property
    def waits_for(self) -> Any:
        """Cause of the wait, in words."""
        return describe_wait(self.call.waits_for)

    @property
    def percent(self) -> float | None:
        """Progress in percent; None without a total."""
        progress, total = self.call.progress, self.call.progress_total
        if progress is None or not total or total < 0:
            return None
        return min(max(100 * progress / total, 0), MAX_PERCENT_VALUE_COUNT)

    @property
    def ignores_cancellation(self) -> bool:
        """Return True if the call still runs some time after its cancellation."""
        return self.call.cancelled is not None and self.now - self.call.cancelled > LATE_CANCELLATION


def describe_wait(cause: str) -> Any:
    """Return the cause of a wait in words."""
    if cause.startswith(REMOTE_PREFIX):
        return _("the server %s") % cause.removeprefix(REMOTE_PREFIX)
    return WAIT_LABELS.get(cause, cause)


@dataclass(frozen=True, slots=True)
class RunningCalls:
    """Running calls that are older than a second, and the processes."""

    calls: list[RunningCallRow]
    processes: list[ServingProcess]
    silent: list[ServingProcess] = field(default_factory=list)
    """Processes that do not report any more. Their calls are lost."""
    alerts: list[Alert] = field(default_factory=list)
    """Active alerts, the oldest first."""
    older: int = 0
    """Number of calls that are older than a second, including those above the limit of the list."""
    server: str = ""
    """Server of the calls; empty for all. Processes count short calls of all servers together."""

    @property
    def running(self) -> int:
        """Number of running calls: all, or those of one server that are older than a second."""
        return self.older if self.server else max(sum(process.running for process in self.processes), self.older)

    @property
    def is_shortened(self) -> bool:
        """Return True if the list lacks calls that are older than a second."""
        return len(self.calls) >= MAX_SHOWN_CALLS

    @property
    def unlisted(self) -> int:
        """Number of running calls that the list lacks."""
        return self.running - len(self.calls)

    @property
    def has_mixed_versions(self) -> bool:
        """Return True if the processes run different versions."""
        return len({process.versions for process in self.processes}) > 1

    @property
    def queued(self) -> int:
        """Number of calls that wait for a thread."""
        return sum(process.queued for process in self.processes)


def load_running_calls(server: str = "") -> RunningCalls:
    """Read the running calls of all processes that report. Runs at most eight statements."""
    alias = get_alias()
    processes = list(ServingProcess.objects.using(alias).order_by("name"))
    alive = [process for process in processes if not is_silent(process)]
    calls = LongCall.objects.using(alias).filter(process__in=[process.name for process in alive])
    if server:
        calls = calls.filter(server=server)
    found = list(calls.order_by("started")[:MAX_SHOWN_CALLS])
    names = load_user_names(call.user_key for call in found)
    now = timezone.now()
    credentials = load_credentials(call.principal for call in found)
    rows = [
        RunningCallRow(
            call,
            names.get(call.user_key) or call.user_key or call.principal,
            now,
            credentials.get(call.principal),
        )
        for call in found
    ]
    alerts = list(Alert._default_manager.using(alias).filter(is_active=True).order_by("since")[:MAX_SHOWN_ALERTS])
    older = calls.count() if len(found) >= MAX_SHOWN_CALLS else len(found)
    silent = [process for process in processes if is_silent(process)]
    return RunningCalls(rows, alive, silent, alerts, older=older, server=server)


def mark_cancelled(key: str) -> LongCall | None:
    """Let the process of a running call cancel it; return the call.

    Returns None if the call has ended or was cancelled before.
    """
    calls = LongCall.objects.using(get_alias()).filter(key=key, cancelled=None)
    call = calls.first()
    return call if call is not None and calls.update(cancelled=timezone.now()) else None
