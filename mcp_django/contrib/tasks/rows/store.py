"""Transitions of tasks, as blocking functions on the primary database.

Run them with `run_on_rows`: on a thread and a connection of its own, outside of the transactions of calls. Each
transition is one conditional UPDATE, or a transaction that starts with one.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from datetime import datetime, timedelta
from typing import Any, NamedTuple, TypeVar

from django.db import connections, router, transaction
from django.db.models import Count, F, Q, QuerySet

from mcp_django import wiring
from mcp_django.contrib.tasks.models import (
    ACTIVE,
    MESSAGE_CHARACTERS,
    AttemptOutcome,
    OwnerLock,
    Task,
    TaskAttempt,
    TaskInput,
    TaskStatus,
    TaskStep,
)
from mcp_django.contrib.tasks.options import TaskSettings
from mcp_django.contrib.tasks.rows import database
from mcp_django.contrib.tasks.rows.database import AVAILABILITY
from mcp_django.contrib.tasks.signals import task_created, task_finished
from mcp_django.extensions.calls import get_logger, jsonrpc
from mcp_django.extensions.errors import Overloaded
from mcp_django.extensions.event_loop import run_on_own_thread
from mcp_django.types import clean_line

logger = get_logger("mcp_django.tasks")
T = TypeVar("T")


class Question(NamedTuple):
    """A request to the client that an attempt could not answer from the rows."""

    name: str
    """Name of the request in the run."""
    digest: str
    request: dict[str, Any]
    """The request on the wire: `method` and `params`."""


class Refusal(NamedTuple):
    """Answer of a client that refuses a request with an error (handshake era)."""

    message: str


async def run_on_rows(fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> T:
    """Run a blocking function of this module. It completes even if the caller is cancelled."""
    return await run_on_own_thread(wiring.get_services().log_executor, AVAILABILITY.observe, fn, *args, **kwargs)


def get_alias() -> str:
    """Return the alias of the database with the tasks."""
    return router.db_for_write(Task)


def create(task: Task, steps: Mapping[str, str], limits: TaskSettings) -> None:
    """Insert a task, with the attempt that runs already, if any, and its steps. Its life begins now.

    Raises Overloaded if the caller or the server has too many unfinished tasks. The limit of a caller is exact; callers
    that create tasks at the same time may exceed that of the server.
    """
    now = database.now()
    task.created = task.updated = now
    task.expires = now + timedelta(milliseconds=task.ttl_ms)
    if task.worker:
        task.heartbeat = now
        task.lease_expires = now + timedelta(seconds=limits.lease)
    while not _insert_under_lock(task, steps, limits):
        OwnerLock.objects.insert(task.owner_hash)
    task_created.send_robust(sender=Task, task=task)


def _insert_under_lock(task: Task, steps: Mapping[str, str], limits: TaskSettings) -> bool:
    """Count the tasks and insert one, while no other process does so for the owner.

    Returns False if the lock of the owner does not exist yet. Raises Overloaded.
    """
    with transaction.atomic(using=get_alias()):
        if not OwnerLock.objects.acquire(task.owner_hash):
            return False
        _check_limits(task, limits)
        task.save(force_insert=True, using=get_alias())
        if task.worker:
            start_attempts([task])
        if steps:
            TaskStep.objects.bulk_create([TaskStep(task=task, key=key, value=value) for key, value in steps.items()])
    return True


def _check_limits(task: Task, limits: TaskSettings) -> None:
    counts = Task.objects.filter(server=task.server, status__in=ACTIVE).aggregate(
        total=Count("pk"), own=Count("pk", filter=Q(owner_hash=task.owner_hash))
    )
    if counts["own"] >= limits.tasks_per_owner or counts["total"] >= limits.tasks_per_server:
        text = "Too many unfinished tasks; wait until some have finished, or cancel them"
        raise Overloaded(text, retry_after=limits.poll, status=429)


def find(id: str, owner_hash: str) -> Task | None:
    """Return the task of an owner, or None if it is unknown or expired. One indexed read."""
    task = Task.objects.filter(pk=id, owner_hash=owner_hash).first()
    return None if task is None or task.expires <= database.now() else task


def follow(id: str, owner_hash: str) -> Task | None:
    """Return the task of an owner, and have its changes published from now on."""
    Task.objects.filter(pk=id, owner_hash=owner_hash, is_followed=False).update(is_followed=True)
    return find(id, owner_hash)


def list_after(owner_hash: str, after: tuple[datetime, str] | None, limit: int) -> list[Task]:
    """Return up to `limit` tasks of an owner that follow `after` (creation and id), the oldest first."""
    rows = Task.objects.filter(owner_hash=owner_hash, expires__gt=database.now()).order_by("created", "pk")
    if after is not None:
        created, id = after
        rows = rows.filter(Q(created__gt=created) | Q(created=created, pk__gt=id))
    return list(rows[:limit])


def cancel(id: str) -> Task | None:
    """Cancel a task; return its row, or None if it has a terminal status."""
    now = database.now()
    # A result in the row was committed by the tool, which cannot be undone: the task is about to complete.
    changed = Task.objects.filter(pk=id, status__in=ACTIVE, result="").update(
        status=TaskStatus.CANCELLED, updated=now, finished=now, input_requests="", worker="", lease_expires=None
    )
    return read_finished(id) if changed else None


def answer(id: str, responses: Mapping[str, dict[str, Any] | Refusal]) -> Task | None:
    """Record the answers to open questions; ignore all other keys.

    An answer is stored as an object, and a refusal as its text. Returns the row if no question is open any more, so
    that the task runs again.
    """
    with transaction.atomic(using=get_alias()):
        # The write comes first: it locks the row, so that concurrent answers see each other.
        if not Task.objects.filter(pk=id, status=TaskStatus.INPUT_REQUIRED).update(updated=database.now()):
            return None
        open_rows = list(TaskInput.objects.filter(task=id, closed=None).order_by("pk"))
        for row in open_rows:
            if row.key in responses:
                given = responses[row.key]
                row.answer = jsonrpc.dumps(given.message if isinstance(given, Refusal) else given).decode()
                row.closed = database.now()
                row.save(update_fields=["answer", "closed"])

        rest = [row for row in open_rows if row.closed is None]
        status = TaskStatus.INPUT_REQUIRED if rest else TaskStatus.WORKING
        Task.objects.filter(pk=id).update(status=status, input_requests=_encode_requests(rest))
    return None if rest else Task.objects.get(pk=id)


def restart_lifetime(id: str, seconds: float) -> None:
    """Let a task with open questions live for some seconds from now on."""
    now = database.now()
    asking = Task.objects.filter(pk=id, status=TaskStatus.INPUT_REQUIRED)
    asking.update(created=now, expires=now + timedelta(seconds=seconds))


def _encode_requests(rows: Iterable[TaskInput]) -> str:
    requests = {row.key: jsonrpc.loads(row.request) for row in rows}
    return jsonrpc.dumps(requests).decode() if requests else ""


def suspend(id: str, worker: str, questions: Sequence[Question], accepted: Iterable[str], number: int) -> Task | None:
    """Store the questions of an attempt and end it; return the row.

    Returns None if the attempt has lost its lease.
    """
    now = database.now()
    with transaction.atomic(using=get_alias()):
        held = Task.objects.filter(pk=id, worker=worker, status__in=ACTIVE)
        if not held.update(status=TaskStatus.INPUT_REQUIRED, updated=now, worker="", lease_expires=None):
            return None
        rows = list(TaskInput.objects.filter(task=id).order_by("pk"))
        open_rows = _merge_questions(id, rows, questions, now)
        TaskInput.objects.filter(task=id, name__in=list(accepted)).exclude(answer="").update(is_accepted=True)
        Task.objects.filter(pk=id).update(input_requests=_encode_requests(open_rows))
        _end_attempt(id, number, AttemptOutcome.SUSPENDED)
    return Task.objects.get(pk=id)


def _merge_questions(id: str, rows: list[TaskInput], questions: Sequence[Question], now: datetime) -> list[TaskInput]:
    """Insert the new questions, close those that are no longer asked, and return the open ones."""
    open_rows = {(row.name, row.digest): row for row in rows if row.closed is None}
    keys = {row.key for row in rows}
    asked: list[TaskInput] = []
    for question in questions:
        row = open_rows.pop((question.name, question.digest), None)
        if row is None:
            row = TaskInput(
                task_id=id,
                key=_find_free_key(question.name, keys),
                name=question.name,
                digest=question.digest,
                request=jsonrpc.dumps(question.request).decode(),
                created=now,
            )
            row.save(force_insert=True)
            keys.add(row.key)
        asked.append(row)
    if open_rows:
        TaskInput.objects.filter(pk__in=[row.pk for row in open_rows.values()]).update(closed=now)
    return asked


def _find_free_key(name: str, keys: set[str]) -> str:
    """Return a key that the task has never used."""
    number, key = 1, name
    while key in keys:
        number += 1
        key = f"{name}.{number}"
    return key


class TaskEnd(NamedTuple):
    """The end of a task: its terminal status, and further columns of its row."""

    task: Task
    """The row of the attempt; its `worker` must hold the lease."""
    status: TaskStatus
    values: Mapping[str, Any]


def finish_attempts(ends: Sequence[TaskEnd]) -> list[Task]:
    """Give tasks their terminal statuses and end their attempts, in one transaction; return their rows.

    Tasks that have a terminal status, or whose attempt has lost its lease, are left out.
    """
    with transaction.atomic(using=get_alias()):
        # In the order of the keys, so that two transactions never wait for each other.
        tasks = [end.task for end in sorted(ends, key=lambda end: end.task.pk) if finish_row(end)]
        for number in {task.attempts for task in tasks}:
            ids = [task.pk for task in tasks if task.attempts == number]
            open_attempts = TaskAttempt.objects.filter(task__in=ids, number=number, ended=None)
            open_attempts.update(ended=database.now(), outcome=AttemptOutcome.FINISHED)
    if not tasks:
        return []

    # The texts may be large; whichever receiver needs one reads it.
    rows = list(Task.objects.filter(pk__in=[task.pk for task in tasks]).defer("arguments", "context", "result"))
    for row in rows:
        task_finished.send_robust(sender=Task, task=row)
    return rows


def finish_row(end: TaskEnd) -> bool:
    """Give a task its terminal status; return False if it has one, or if the attempt has lost its lease.

    The caller sends the signal after its transaction.
    """
    now, values = database.now(), dict(end.values)
    if "status_message" in values:
        values["status_message"] = clean_message(values["status_message"])
    held = Task.objects.filter(pk=end.task.pk, worker=end.task.worker, status__in=ACTIVE)
    if end.status == TaskStatus.FAILED:
        held = held.filter(result="")  # a committed result remains
    return bool(
        held.update(
            status=end.status, updated=now, finished=now, worker="", lease_expires=None, input_requests="", **values
        )
    )


def read_finished(id: str) -> Task:
    """Return the row of a task that has just reached a terminal status, and send the signal."""
    task = Task.objects.get(pk=id)
    task_finished.send_robust(sender=Task, task=task)
    return task


def complete_committed(task: Task) -> bool:
    """Complete a task whose tool has committed its result.

    Returns False if there is no such result, or the lease is lost. The caller sends the signal after its transaction.
    """
    now = database.now()
    held = Task.objects.filter(pk=task.pk, worker=task.worker, status=TaskStatus.WORKING).exclude(result="")
    return bool(held.update(status=TaskStatus.COMPLETED, updated=now, finished=now, worker="", lease_expires=None))


def commit_result(id: str, worker: str, values: Mapping[str, Any]) -> bool:
    """Store columns of a running task, in the transaction of its tool; return False if the lease is lost.

    The row stays locked until the transaction ends, so call it last.
    """
    held = Task.objects.filter(pk=id, worker=worker, status=TaskStatus.WORKING)
    return bool(held.update(**{"heartbeat": database.now(), **values}))


def read_committed(id: str) -> dict[str, Any]:
    """Return the columns that `commit_result` has stored; empty without a committed result."""
    rows = Task.objects.filter(pk=id).exclude(result="").values("result", "is_error", "status_message")
    return dict(rows.first() or {})


def record_step(id: str, worker: str, key: str, value: str) -> bool:
    """Store the value of a step, in the transaction of the step if it has one.

    Returns False if the attempt has lost its lease.
    """
    held = Task.objects.filter(pk=id, worker=worker, status__in=ACTIVE)
    if not connections[get_alias()].in_atomic_block:
        # A longer transaction would prevent the heartbeats. It confirms its attempt at its end.
        held = held.select_for_update()
    with transaction.atomic(using=get_alias()):
        if held.values_list("pk").first() is None:
            return False
        TaskStep.objects.get_or_create(task_id=id, key=key, defaults={"value": value})
    return True


class StoredConversation(NamedTuple):
    """Answers and steps of the earlier attempts of a task."""

    inputs: list[TaskInput]
    steps: dict[str, str]


def read_conversation(id: str) -> StoredConversation:
    """Return the answers and steps of the earlier attempts of a task."""
    return StoredConversation(
        list(TaskInput.objects.filter(task=id).order_by("pk")),
        dict(TaskStep.objects.filter(task=id).values_list("key", "value")),
    )


class LeaseExtension(NamedTuple):
    """Leases after a heartbeat, each given by the id of its task and its worker.

    A lease in neither set is locked by a transaction, such as that of its own tool, and may be extended later.
    """

    extended: Set[tuple[str, str]]
    lost: Set[tuple[str, str]]


def extend_leases(leases: Set[tuple[str, str]], lease: float) -> LeaseExtension:
    """Extend leases, each given by the id of its task and its worker.

    It takes one statement, and a second one if a lease is not extended. It never waits for a row that is locked: all
    other leases would be lost meanwhile.
    """
    now = database.now()
    ids, workers = {id for id, _ in leases}, {worker for _, worker in leases}
    rows = Task.objects.filter(pk__in=ids, worker__in=workers, status__in=ACTIVE)
    with transaction.atomic(using=get_alias(), savepoint=False):
        count = _skip_locked(rows).update(heartbeat=now, lease_expires=now + timedelta(seconds=lease))
    if count == len(leases):
        return LeaseExtension(leases, frozenset())
    beats = {(id, worker): beat for id, worker, beat in rows.values_list("pk", "worker", "heartbeat")}
    return LeaseExtension({key for key, beat in beats.items() if beat == now}, leases - beats.keys())


def _skip_locked(rows: QuerySet[Task]) -> QuerySet[Task]:
    """Return the rows that no other transaction has locked, and lock them in this one."""
    features = connections[get_alias()].features
    if not features.has_select_for_update_skip_locked:
        return rows
    free: Any = rows.select_for_update(skip_locked=True).values("pk")
    if not features.update_can_self_select:  # MySQL
        free = list(free.values_list("pk", flat=True))
    return Task.objects.filter(pk__in=free)


def lock_attempt(task: Task, **conditions: Any) -> bool:
    """Lock the row of an attempt in this transaction; `conditions` are further lookups of the row.

    Returns False if the attempt has lost its lease, or its tool is about to commit: such a tool has locked the row.
    """
    rows = Task.objects.filter(pk=task.pk, worker=task.worker, status=TaskStatus.WORKING, **conditions)
    if connections[get_alias()].features.has_select_for_update_skip_locked:
        rows = rows.select_for_update(skip_locked=True)
    return rows.values_list("pk").first() is not None


def write_progress(id: str, worker: str, changes: Mapping[str, Any]) -> bool:
    """Store the progress of an attempt; return False if the lease is lost."""
    held = Task.objects.filter(pk=id, worker=worker, status__in=ACTIVE)
    return bool(held.update(updated=database.now(), **changes))


def is_followed(id: str) -> bool:
    """Return True if a client listens to the changes of a task."""
    return Task.objects.filter(pk=id, is_followed=True).exists()


def start_attempts(tasks: Iterable[Task]) -> None:
    """Insert the rows of attempts."""
    now = database.now()
    TaskAttempt.objects.bulk_create(
        [TaskAttempt(task_id=task.pk, number=task.attempts, worker=task.worker, started=now) for task in tasks]
    )


def _end_attempt(id: str, number: int, outcome: AttemptOutcome) -> None:
    TaskAttempt.objects.filter(task=id, number=number, ended=None).update(ended=database.now(), outcome=outcome)


def end_attempt(id: str, number: int, outcome: AttemptOutcome) -> None:
    """Store the end of an attempt whose task another process has changed."""
    _end_attempt(id, number, outcome)


def give_up_lease(id: str, worker: str) -> bool:
    """Return a task to the waiting ones after its attempt was lost, if it may run again."""
    return bool(
        Task.objects.filter(
            pk=id, worker=worker, status=TaskStatus.WORKING, losses__lt=F("max_losses"), result=""
        ).update(worker="", lease_expires=None, losses=F("losses") + 1, updated=database.now())
    )


def clean_message(text: str) -> str:
    """Return a status message as one line of visible characters, of bounded length."""
    return clean_line(text, MESSAGE_CHARACTERS)
