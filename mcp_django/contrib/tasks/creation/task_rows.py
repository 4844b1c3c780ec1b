"""Rows of new tasks: their columns, and the options of their tools."""

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from mcp_django.contrib.tasks.attempts.attempt import describe_task_call
from mcp_django.contrib.tasks.attempts.callers import may_act_for, repeat_context
from mcp_django.contrib.tasks.backend import TaskBackend
from mcp_django.contrib.tasks.models import Task, TaskOrigin
from mcp_django.contrib.tasks.options import get_settings
from mcp_django.contrib.tasks.rows import database, store
from mcp_django.contrib.tasks.upkeep import enqueue_task, start_maintenance
from mcp_django.extensions import Call, InvalidParams, Tool
from mcp_django.extensions.callers import get_owner, get_user_pk
from mcp_django.extensions.calls import jsonrpc
from mcp_django.extensions.primitives import TaskOptions

HINTED_RETRIES = 2
"""Repetitions after a lost worker, for tools that are annotated as idempotent or read-only."""
REPEATED_FIELDS = (
    *("owner_hash", "owner", "user_id", "session", "server", "tool", "arguments", "context", "origin", "revision"),
    *("ttl_ms", "poll_ms", "queue", "max_losses"),
)
"""Columns that a repetition of a task takes over."""


def build_task_row(
    call: Call, tool: Tool, arguments: dict[str, Any], *, origin: TaskOrigin, rounds: Mapping[str, Any], ttl: float
) -> Task:
    """Build the row of a call, unsaved. `ttl` is in seconds.

    Raises InvalidParams for arguments that are too large.
    """
    options, settings = get_task_options(tool), get_settings()
    encoded = jsonrpc.dumps(arguments).decode()
    if len(encoded) > settings.argument_bytes:
        raise InvalidParams(f"The arguments have {len(encoded)} bytes; a task stores at most {settings.argument_bytes}")
    now, owner = database.now(), get_owner(call)
    ttl_ms = max(1, round(min(ttl, settings.max_ttl) * 1000))
    poll = settings.poll if options.poll is None else options.poll
    return Task(
        owner_hash=owner.digest,
        owner=owner.label,
        user_id=get_user_pk(call.principal),
        session=None if call.session is None else call.session.pk,
        server=call.server.alias,
        tool=tool.name,
        arguments=encoded,
        context=describe_task_call(call, rounds),
        origin=origin,
        revision=call.revision.version,
        ttl_ms=ttl_ms,
        poll_ms=max(1, round(poll * 1000)),
        queue=options.queue,
        max_losses=get_max_losses(tool),
        created=now,
        updated=now,
        expires=now + timedelta(milliseconds=ttl_ms),
    )


def build_repetition(task: Task, operator: Any) -> Task:
    """Build an unsaved task with the call of another one. The operator acts for its caller.

    The client's earlier answers are left out, because an agreement is good for one run.
    """
    now = database.now()
    copied = {field: getattr(task, field) for field in REPEATED_FIELDS}
    copied["context"] = jsonrpc.dumps(repeat_context(task.get_context(), operator)).decode()
    return Task(**copied, created=now, updated=now, expires=now + timedelta(milliseconds=task.ttl_ms))


def may_repeat(task: Task, operator: Any) -> bool:
    """Return True if the caller of a task has no more rights than an operator. Queries the database."""
    try:
        kind = task.get_context()["principal"]["kind"]
    except (ValueError, TypeError, LookupError):  # a damaged row
        return False
    return may_act_for(operator, task.user, kind)


def get_task_options(tool: Tool) -> TaskOptions:
    """Return the options of the tasks of a tool."""
    return tool.task or TaskOptions()


def get_ttl(tool: Tool) -> float:
    """Return the seconds that a task of the tool lives."""
    options = get_task_options(tool)
    return get_settings().ttl if options.ttl is None else options.ttl


def get_grace(tool: Tool) -> float:
    """Return the seconds in which a call of the tool may finish with a plain result."""
    options = get_task_options(tool)
    return get_settings().grace if options.grace is None else options.grace


def get_max_losses(tool: Tool) -> int:
    """Return how often the tool may run again after its worker was lost."""
    options, hints = get_task_options(tool), tool.annotations
    if options.retry is not None:
        return options.retry
    return HINTED_RETRIES if hints is not None and (hints.idempotent or hints.read_only) else 0


async def start_task_of_call(backend: TaskBackend, task: Task) -> None:
    """Insert the row of a task and enqueue its first attempt. The row is committed when this returns.

    Raises Overloaded at a limit.
    """
    await store.run_on_rows(store.create, task, {}, get_settings())
    start_maintenance()
    await enqueue_task(backend, task)
