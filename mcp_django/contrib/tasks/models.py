"""Tables of tasks: jobs, their questions, their recorded steps, and their attempts.

Each transition is one conditional UPDATE, or a transaction that starts with one. A terminal status never changes.
"""

import secrets
import zlib
from datetime import datetime
from typing import Any

from django.db import models
from django.utils import timezone
from django.utils.translation import gettext_lazy as _

from mcp_django.extensions.calls import jsonrpc
from mcp_django.extensions.rows import PrimaryManager, create_user_key

ID_BYTES = 24
"""Random bytes of an id, enough that no client can guess one."""
ID_CHARACTERS = 32
OWNER_CHARACTERS = 255
WORKER_CHARACTERS = 120
KEY_CHARACTERS = 255
MESSAGE_CHARACTERS = 1000
"""Maximum characters of a status message."""
MAX_LOCKS = 256
"""Maximum rows of `OwnerLock`."""


class TaskStatus(models.TextChoices):
    """Status of a task, as on the wire."""

    WORKING = "working", _("working")
    INPUT_REQUIRED = "input_required", _("input required")
    COMPLETED = "completed", _("completed")
    FAILED = "failed", _("failed")
    CANCELLED = "cancelled", _("cancelled")


ACTIVE = (TaskStatus.WORKING, TaskStatus.INPUT_REQUIRED)
"""Statuses that are not terminal."""


class TaskOrigin(models.TextChoices):
    """Kind of tasks that the client knows."""

    EXTENSION = "extension", _("tasks extension")
    CORE = "core", _("core tasks")


def create_task_id() -> str:
    """Return a new id, which cannot be guessed."""
    return secrets.token_urlsafe(ID_BYTES)


class Task(models.Model):
    """A call of a tool that outlives its request.

    Texts that hold JSON are encoded: PostgreSQL's JSON rejects NUL.
    """

    id = models.CharField(_("id"), max_length=ID_CHARACTERS, primary_key=True, default=create_task_id)
    owner_hash = models.CharField(_("owner digest"), max_length=64)
    owner = models.CharField(_("owner"), max_length=OWNER_CHARACTERS)
    user = create_user_key(null=True, blank=True)
    session = models.BigIntegerField(_("session"), null=True, blank=True)
    server = models.CharField(_("server"), max_length=64)
    tool = models.CharField(_("tool"), max_length=128)
    arguments = models.TextField(_("arguments"))
    context = models.TextField(_("context"))
    origin = models.CharField(_("origin"), max_length=16, choices=TaskOrigin.choices)
    revision = models.CharField(_("revision"), max_length=16)

    status = models.CharField(_("status"), max_length=16, choices=TaskStatus.choices, default=TaskStatus.WORKING)
    status_message = models.CharField(_("status message"), max_length=MESSAGE_CHARACTERS, blank=True)
    progress = models.FloatField(_("progress"), null=True, blank=True)
    total = models.FloatField(_("total"), null=True, blank=True)
    result = models.TextField(_("result"), blank=True)
    error = models.TextField(_("error"), blank=True)
    input_requests = models.TextField(_("open questions"), blank=True)
    is_error = models.BooleanField(_("result is an error"), default=False)
    is_followed = models.BooleanField(_("followed"), default=False)

    ttl_ms = models.BigIntegerField(_("time to live in milliseconds"))
    poll_ms = models.PositiveIntegerField(_("poll interval in milliseconds"))
    queue = models.CharField(_("queue"), max_length=64)
    attempts = models.PositiveIntegerField(_("attempts"), default=0)
    losses = models.PositiveIntegerField(_("lost attempts"), default=0)
    max_losses = models.PositiveIntegerField(_("lost attempts that are repeated"), default=0)
    worker = models.CharField(_("worker"), max_length=WORKER_CHARACTERS, blank=True)
    lease_expires = models.DateTimeField(_("lease expires"), null=True, blank=True)
    heartbeat = models.DateTimeField(_("heartbeat"), null=True, blank=True)
    sent = models.DateTimeField(_("sent to the workers again"), null=True, blank=True)
    run_after = models.DateTimeField(_("not before"), null=True, blank=True)
    unknown_since = models.DateTimeField(_("unknown to its workers since"), null=True, blank=True)

    created = models.DateTimeField(_("created"), default=timezone.now)
    updated = models.DateTimeField(_("updated"), default=timezone.now)
    expires = models.DateTimeField(_("expires"))
    finished = models.DateTimeField(_("finished"), null=True, blank=True)

    lease_sent = 0.0
    """Time of `aio.clock.monotonic` before the statement of the claim was sent.

    Only the process with the claim has it.
    """

    objects = PrimaryManager["Task"]()

    class Meta:
        verbose_name = _("task")
        verbose_name_plural = _("tasks")
        default_permissions = ("view", "change", "delete")
        indexes = (
            models.Index(fields=["owner_hash", "created"], name="mcp_tasks_owner"),
            models.Index(fields=["server", "status"], name="mcp_tasks_server"),
            models.Index(fields=["status", "queue", "created"], name="mcp_tasks_waiting"),
            # The rows that workers search. A claim reads as many entries as it takes, however many tasks wait.
            models.Index(fields=["created"], condition=models.Q(status="working", worker=""), name="mcp_tasks_next"),
            models.Index(fields=["expires"], name="mcp_tasks_expires"),
        )

    def __str__(self) -> str:
        return f"{self.tool}: {self.get_status_display()}"

    @property
    def is_terminal(self) -> bool:
        """True if the status never changes again."""
        return self.status not in ACTIVE

    def is_lost(self, now: datetime) -> bool:
        """Return True if the worker of the running attempt has let its lease expire."""
        return (
            bool(self.worker) and not self.is_terminal and self.lease_expires is not None and self.lease_expires < now
        )

    def get_context(self) -> dict[str, Any]:
        """Return the facts of the call that an attempt needs."""
        return dict(jsonrpc.loads(self.context))


class TaskInput(models.Model):
    """A question of a task to the client. Its key is never used again."""

    task = models.ForeignKey(Task, on_delete=models.CASCADE, related_name="inputs", verbose_name=_("task"))
    key = models.CharField(_("key"), max_length=KEY_CHARACTERS)
    name = models.CharField(_("name in the run"), max_length=KEY_CHARACTERS)
    digest = models.CharField(_("digest"), max_length=64)
    request = models.TextField(_("request"))
    answer = models.TextField(_("answer"), blank=True)
    is_accepted = models.BooleanField(_("accepted"), default=False)
    created = models.DateTimeField(_("created"), default=timezone.now)
    asked = models.DateTimeField(_("asked"), null=True, blank=True)
    closed = models.DateTimeField(_("closed"), null=True, blank=True)

    objects = PrimaryManager["TaskInput"]()

    class Meta:
        verbose_name = _("question of a task")
        verbose_name_plural = _("questions of tasks")
        default_permissions = ("view",)
        constraints = (models.UniqueConstraint(fields=["task", "key"], name="mcp_tasks_input_key"),)

    def __str__(self) -> str:
        return self.key


class TaskStep(models.Model):
    """The value of a step that a task runs once (`ctx.run_once`)."""

    task = models.ForeignKey(Task, on_delete=models.CASCADE, related_name="steps", verbose_name=_("task"))
    key = models.CharField(_("key"), max_length=KEY_CHARACTERS)
    value = models.TextField(_("value"))

    objects = PrimaryManager["TaskStep"]()

    class Meta:
        verbose_name = _("step of a task")
        verbose_name_plural = _("steps of tasks")
        default_permissions = ()
        constraints = (models.UniqueConstraint(fields=["task", "key"], name="mcp_tasks_step_key"),)

    def __str__(self) -> str:
        return self.key


class AttemptOutcome(models.TextChoices):
    """The end of an attempt."""

    FINISHED = "finished", _("finished")
    SUSPENDED = "suspended", _("waits for input")
    CANCELLED = "cancelled", _("cancelled")
    STOPPED = "stopped", _("stopped with its process")
    LOST = "lost", _("lost with its worker")


class TaskAttempt(models.Model):
    """A run of the tool for a task."""

    task = models.ForeignKey(Task, on_delete=models.CASCADE, related_name="runs", verbose_name=_("task"))
    number = models.PositiveIntegerField(_("number"))
    worker = models.CharField(_("worker"), max_length=WORKER_CHARACTERS)
    started = models.DateTimeField(_("started"), default=timezone.now)
    ended = models.DateTimeField(_("ended"), null=True, blank=True)
    outcome = models.CharField(_("outcome"), max_length=16, choices=AttemptOutcome.choices, blank=True)

    objects = PrimaryManager["TaskAttempt"]()

    class Meta:
        verbose_name = _("attempt of a task")
        verbose_name_plural = _("attempts of tasks")
        default_permissions = ("view",)
        constraints = (models.UniqueConstraint(fields=["task", "number"], name="mcp_tasks_attempt_number"),)

    def __str__(self) -> str:
        return f"{self.task_id} {self.number}"


class TaskWorker(models.Model):
    """A process of `manage.py mcp_worker`, which reports here every few seconds."""

    host = models.CharField(_("host"), max_length=255)
    pid = models.PositiveBigIntegerField(_("process ID"))
    queues = models.TextField(_("queues"), blank=True)
    concurrency = models.PositiveIntegerField(_("tasks at once"))
    running = models.PositiveIntegerField(_("running tasks"), default=0)
    finished = models.PositiveBigIntegerField(_("ended attempts"), default=0)
    started = models.DateTimeField(_("started"), default=timezone.now)
    seen = models.DateTimeField(_("last report"), default=timezone.now, db_index=True)

    objects = PrimaryManager["TaskWorker"]()

    class Meta:
        verbose_name = _("task worker")
        verbose_name_plural = _("task workers")
        default_permissions = ("view",)

    def __str__(self) -> str:
        return f"{self.host}:{self.pid}"


class OwnerLockQuerySet(models.QuerySet["OwnerLock"]):
    """Query set of locks of owners."""

    def acquire(self, owner_hash: str) -> bool:
        """Lock the row of an owner until the transaction ends; return False if it does not exist yet.

        This must be the first statement of the transaction. It is an UPDATE, because SQLite has no locks of rows.
        """
        return bool(self.filter(pk=find_lock(owner_hash)).update(used=timezone.now()))

    def insert(self, owner_hash: str) -> None:
        """Insert the row of an owner, unless it exists.

        Call it before the transaction that locks the row, because MySQL would deadlock otherwise.
        """
        self.bulk_create([OwnerLock(pk=find_lock(owner_hash))], ignore_conflicts=True)


class OwnerLock(models.Model):
    """A row that processes lock before they count the tasks of an owner. Many owners share it.

    There are at most `MAX_LOCKS` rows, so that none needs to be deleted.
    """

    id = models.PositiveSmallIntegerField(primary_key=True)
    used = models.DateTimeField(_("last use"), default=timezone.now)

    objects = PrimaryManager.from_queryset(OwnerLockQuerySet)()

    class Meta:
        verbose_name = _("lock of task owners")
        verbose_name_plural = _("locks of task owners")
        default_permissions = ()

    def __str__(self) -> str:
        return str(self.pk)


def find_lock(owner_hash: str) -> int:
    """Return the primary key of the lock of an owner."""
    return zlib.crc32(owner_hash.encode()) % MAX_LOCKS
