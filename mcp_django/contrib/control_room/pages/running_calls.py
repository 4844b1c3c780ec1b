"""Running calls of all processes, and the processes."""

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from django.utils import timezone
from django.utils.translation import gettext_lazy as _

from mcp_django.contrib.control_room.models import Alert, LongCall, ServingProcess
from mcp_django.contrib.control_room.pages.callers import load_user_names
from mcp_django.contrib.control_room.pages.figures import CallTarget
from mcp_django.contrib.control_room.recording.process_reports import is_silent
from mcp_django.contrib.control_room.recording.writer import get_alias
from mcp_django.server.calls.outcome import REMOTE_PREFIX, THREAD

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
    "": _("nothing: its own code or SQL runs"),
}


@dataclass(frozen=True, slots=True)
class RunningCallRow:
    """Running call, as shown on the page."""

    call: LongCall
    user: str
    """Name of the user, or the principal."""
    now: datetime

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

    @property
    def running(self) -> int:
        """Number of all running calls, short ones as well."""
        return sum(process.running for process in self.processes)

    @property
    def queued(self) -> int:
        """Number of calls that wait for a thread."""
        return sum(process.queued for process in self.processes)


def load_running_calls(server: str = "") -> RunningCalls:
    """Read the running calls of all processes that report. Runs four statements."""
    alias = get_alias()
    processes = list(ServingProcess.objects.using(alias).order_by("name"))
    alive = [process for process in processes if not is_silent(process)]
    calls = LongCall.objects.using(alias).filter(process__in=[process.name for process in alive])
    if server:
        calls = calls.filter(server=server)
    found = list(calls.order_by("started")[:MAX_SHOWN_CALLS])
    names = load_user_names(call.user_key for call in found)
    now = timezone.now()
    rows = [RunningCallRow(call, names.get(call.user_key) or call.user_key or call.principal, now) for call in found]
    alerts = list(Alert._default_manager.using(alias).filter(is_active=True).order_by("since")[:MAX_SHOWN_ALERTS])
    return RunningCalls(rows, alive, [process for process in processes if is_silent(process)], alerts)


def mark_cancelled(key: str) -> LongCall | None:
    """Let the process of a running call cancel it; return the call.

    Returns None if the call has ended or was cancelled before.
    """
    calls = LongCall.objects.using(get_alias()).filter(key=key, cancelled=None)
    call = calls.first()
    return call if call is not None and calls.update(cancelled=timezone.now()) else None
