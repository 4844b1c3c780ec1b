"""Admin pages of tasks: their state, progress and attempts, cancellation, and repetition.

Arguments, questions and results are not shown, because they hold the data of users.
"""

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

from asgiref.sync import async_to_sync
from django.contrib import admin
from django.http import HttpRequest, HttpResponse
from django.template.defaultfilters import filesizeformat
from django.utils import timezone
from django.utils.timesince import timesince
from django.utils.translation import gettext_lazy as _

from mcp_django.contrib.tasks.backend import get_backend
from mcp_django.contrib.tasks.creation.task_rows import build_repetition, may_repeat, start_task_of_call
from mcp_django.contrib.tasks.models import Task, TaskAttempt, TaskWorker
from mcp_django.contrib.tasks.publishing import publish_change
from mcp_django.contrib.tasks.rows import store
from mcp_django.contrib.tasks.rows.figures import TaskFigures, read_figures
from mcp_django.contrib.tasks.rows.leases import is_worker_alive
from mcp_django.contrib.tasks.upkeep import stop_cancelled_task
from mcp_django.extensions import Overloaded
from mcp_django.extensions.admin_pages import BaseAdmin, RowAction, RowActionAdmin, ServerFilter
from mcp_django.types import clean_line

REPEAT = "repeat"
"""Name of the action that runs a task again."""


class TaskAttemptInline(admin.TabularInline):  # type: ignore[type-arg]  # not generic at run time
    """Timeline of the attempts of a task."""

    model = TaskAttempt
    fields = ("number", "worker", "started", "ended", "outcome")
    readonly_fields = fields
    extra = 0
    can_delete = False

    def has_add_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False


@admin.register(Task)
class TaskAdmin(RowActionAdmin):
    """List tasks with the figures of all. Cancel a task, or run it again, on its page."""

    change_list_template = "mcp_tasks/task_change_list.html"
    can_add = False
    can_change = False
    list_display = ["tool", "status", "progress_text", "user", "created", "duration", "server", "queue", "attempts"]
    list_filter = ["status", ServerFilter, "queue", "tool", "created"]
    list_select_related = ["user"]
    search_fields = ["id__startswith", "tool", "owner", "user"]
    ordering = ["-created"]
    date_hierarchy = "created"
    fields = (
        "id",
        "tool",
        "server",
        "status",
        "progress_text",
        "owner",
        "user",
        "created",
        "duration",
        "finished",
        "expires",
        "queue",
        "worker",
        "heartbeat",
        "lease_expires",
        "run_after",
        "unknown_since",
        "attempts",
        "losses",
        "max_losses",
        "origin",
        "revision",
        "result_size",
    )
    readonly_fields = fields
    inlines = [TaskAttemptInline]
    action_name = "cancel"
    action_label = _("Cancel task")
    action_question = _("The tool stops, and its client is notified. This cannot be undone.")

    def changelist_view(self, request: HttpRequest, extra_context: Any = None) -> HttpResponse:
        """Show the list, with the figures of `manage.py mcp_taskhealth`."""
        context = {"figures": self.list_figures(), **(extra_context or {})}
        return super().changelist_view(request, context)

    def list_figures(self) -> list[tuple[Any, Any]]:
        """Return the figures of `manage.py mcp_taskhealth`, from three statements."""
        return list(_describe_figures(read_figures()))

    def is_action_available(self, row: Task) -> bool:
        return not row.is_terminal

    def run_action(self, row: Task) -> str:
        cancelled = store.cancel(row.pk)
        if cancelled is None:
            return str(_("The task had ended already."))
        async_to_sync(stop_cancelled_task)(get_backend(), cancelled)
        return str(_("The task was cancelled."))

    def get_row_actions(self) -> list[RowAction]:
        question = _("The tool runs again as a new task, with the same arguments and for the same caller.")
        repetition = RowAction(REPEAT, _("Run again"), question, lambda task: task.is_terminal, self._repeat)
        return [*super().get_row_actions(), repetition]

    def has_action_permission(self, request: HttpRequest, row: Any, action: RowAction) -> bool:
        if not super().has_action_permission(request, row, action):
            return False
        return action.name != REPEAT or may_repeat(row, request.user)

    def _repeat(self, row: Task, operator: Any) -> str:
        if not row.is_terminal:
            return str(_("The task has not ended yet."))
        repetition = build_repetition(row, operator)
        try:
            async_to_sync(start_task_of_call)(get_backend(), repetition)
        except Overloaded as problem:
            return str(problem)
        async_to_sync(publish_change)(repetition.pk)
        return str(_("The tool runs again as task %s.") % repetition.pk)

    @admin.display(description=_("progress"))
    def progress_text(self, task: Task) -> str:
        """Return the progress and the status message."""
        amount = "" if task.progress is None else f"{task.progress:g}"
        if amount and task.total is not None:
            amount = f"{amount} / {task.total:g}"
        return clean_line(" · ".join(part for part in (amount, task.status_message) if part)) or "-"

    @admin.display(description=_("duration"))
    def duration(self, task: Task) -> str:
        """Return the time from the call to the end, or until now."""
        return timesince(task.created, task.finished or timezone.now(), depth=1)

    @admin.display(description=_("size of the result"))
    def result_size(self, task: Task) -> str:
        """Return the size of the stored result."""
        return str(filesizeformat(len(task.result.encode()))) if task.result else "-"


def _describe_figures(figures: TaskFigures) -> Iterator[tuple[Any, Any]]:
    """Yield the labels and values of the figures."""
    now = timezone.now()
    yield _("Waiting"), figures.waiting
    if figures.waiting:
        yield _("Oldest waiting for"), timesince(now - timedelta(seconds=figures.oldest_waiting_seconds), now)
    yield _("Running"), figures.running
    yield _("Input required"), figures.input_required
    yield _("Expired leases"), figures.expired_leases
    yield _("Attempts lost in an hour"), figures.lost_attempts
    yield _("Worker processes alive"), figures.workers


@admin.register(TaskWorker)
class TaskWorkerAdmin(BaseAdmin):
    """List the worker processes and their last reports."""

    can_add = False
    can_change = False
    can_delete = False
    list_display = ["__str__", "alive", "running", "concurrency", "finished", "queues", "started", "seen"]
    ordering = ["-seen"]
    help_texts = {"queues": _("Empty: all queues.")}

    @admin.display(description=_("alive"), boolean=True)
    def alive(self, worker: TaskWorker) -> bool:
        """Return True if the process has reported lately."""
        return is_worker_alive(worker)
