"""The run of an attempt, as every backend calls it: claim, execute, keep the lease, store the end.

    await run_attempt(task_id)

It may be called any number of times and in any process. Only the caller that wins the claim runs the tool.
"""

import asyncio
from collections.abc import Iterable, Sequence
from typing import Any

from mcp_django import wiring
from mcp_django.contrib.tasks.attempts import executions
from mcp_django.contrib.tasks.attempts.attempt import Attempt, AttemptResult, build_result_columns
from mcp_django.contrib.tasks.attempts.callers import load_principal
from mcp_django.contrib.tasks.attempts.claims import ClaimedTask, claim_tasks
from mcp_django.contrib.tasks.attempts.ends import repeat_write, return_task, store_end
from mcp_django.contrib.tasks.attempts.heartbeats import HEARTBEATS, LeaseHolder, TaskLease
from mcp_django.contrib.tasks.attempts.unknown_tools import find_unknown_part, return_unknown_task
from mcp_django.contrib.tasks.models import AttemptOutcome, Task, TaskStatus
from mcp_django.contrib.tasks.options import get_settings
from mcp_django.contrib.tasks.publishing import publish_change
from mcp_django.contrib.tasks.rows import leases, store
from mcp_django.extensions.callers import CallerGone
from mcp_django.extensions.calls import get_logger, jsonrpc, shorten_message
from mcp_django.extensions.errors import InternalError, InvalidParams, Overloaded, UnknownTool, find_database_failure
from mcp_django.extensions.event_loop import start_task

logger = get_logger("mcp_django.tasks")
RETURN_SECONDS = 5.0
"""Seconds until a task is tried again whose tool could not begin."""
UNWIND_SECONDS = 1.0
"""Maximum seconds for a cancelled tool to clean up."""


async def run_attempt(id: str, *, worker: str | None = None) -> bool:
    """Claim a waiting task and run its tool to the end of the attempt.

    Returns False if the task does not wait: it is running elsewhere, finished, or unknown. `worker` names the process
    in the row; by default host, process and random letters. A name must be used for one attempt only.

    Raises CancelledError if the process ends; the task then waits again, or fails if it must not run twice.
    """
    name = worker or leases.create_worker_name()

    def claim() -> list[Task]:
        task = leases.claim_task(id, worker=name, lease=get_settings().lease)
        return [] if task is None else [task]

    claimed = await claim_tasks(claim, lambda: leases.return_claim(name))
    for each in claimed:
        await run_claimed_task(each)
    return bool(claimed)


async def run_claimed_task(claimed: ClaimedTask) -> None:
    """Run the tool of a task that `claims.claim_tasks` has claimed, and release its lease."""
    try:
        await _run_task(claimed.task, claimed.lease)
    finally:
        HEARTBEATS.release(claimed.lease)


async def _run_task(task: Task, lease: TaskLease) -> None:
    if (unknown := find_unknown_part(task)) is not None:
        await _end_unknown(task, unknown)
        return
    try:
        principal = await load_principal(task)
        attempt = Attempt(task, wiring.get_server(task.server), principal)
    except CallerGone as problem:
        await _fail(task, InvalidParams.code, str(problem))
        return
    except Overloaded as problem:
        await return_task(task, delay=problem.retry_after or RETURN_SECONDS)
        return
    except Exception as problem:
        if find_database_failure(problem) is not None:
            logger.warning("The caller of a task could not be read; the task waits again", exc_info=True)
            await return_task(task, delay=RETURN_SECONDS)
            return
        logger.exception("The call of a task could not be built")
        await _fail(task, InternalError.code, "The call of this task could not be built")
        return
    if lease.is_over():  # the process was paused, or the loop blocked
        await return_task(task, delay=0)
        return
    attempt.lease = lease
    await supervise(attempt, start_task(attempt.execute()))


async def supervise(attempt: Attempt, execution: "asyncio.Task[AttemptResult]") -> None:
    """Keep the lease of an attempt while its tool runs, and store its end. `attempt.lease` is set.

    Cancelling this function means that the process ends.
    """
    task, lease = attempt.task, attempt.lease
    assert lease is not None
    holder = LeaseHolder(lease, execution.cancel)
    writing = start_task(
        attempt.write_changes(lambda changes: publish_change(task.pk, has_progress=attempt.record_growth(changes)))
    )
    following = start_task(_follow_cancellations(holder))

    with holder:  # until the end is stored, which a blocked loop or an outage may delay
        try:
            with executions.register_execution(task.pk, execution):
                await asyncio.wait([execution])
                is_over = lease.is_over()
        except asyncio.CancelledError:
            execution.cancel()
            await asyncio.wait([execution], timeout=UNWIND_SECONDS)
            await _end_lost_attempt(task, AttemptOutcome.STOPPED, leases.STOPPED_MESSAGE)
            raise
        finally:
            writing.cancel()
            following.cancel()
        await _store_end(attempt, execution, is_over)


async def _follow_cancellations(holder: LeaseHolder) -> None:
    if await executions.follow_cancellations():
        holder.request_beat()


async def _store_end(attempt: Attempt, execution: "asyncio.Task[AttemptResult]", is_over: bool) -> None:
    """Store the end of an attempt. `is_over` is True if its lease was over at its end.

    Its writes were refused from then on, so its errors mean nothing.
    """
    task = attempt.task
    problem = None if execution.cancelled() else execution.exception()
    ended = None if execution.cancelled() or problem is not None else execution.result()
    is_good = ended is not None and (ended.result is None or not ended.result.get("isError")) and ended.error is None
    if not is_good and attempt.has_confirmed and await _complete_committed(task):
        return
    if execution.cancelled() or (is_over and not is_good):
        await _end_cancelled_attempt(attempt, is_over)
    elif problem is not None and not attempt.has_begun and find_database_failure(problem) is not None:
        await return_task(task, delay=RETURN_SECONDS)
    elif problem is not None:
        logger.error("An attempt ended with an exception", exc_info=problem)
        await _fail(task, InternalError.code, "Internal error")
    elif ended is not None:
        await _store_result(attempt, ended)


async def _complete_committed(task: Task) -> bool:
    """Complete a task with the result that its tool has committed; return False without one.

    The answer to a commit may be lost with the connection.
    """
    committed = await repeat_write(lambda: store.run_on_rows(store.read_committed, task.pk))
    if committed:
        await store_end(store.TaskEnd(task, TaskStatus.COMPLETED, committed))
    return bool(committed)


async def _end_cancelled_attempt(attempt: Attempt, is_over: bool) -> None:
    task = attempt.task
    if is_over and attempt.lease is not None and not attempt.lease.is_lost:
        # The lease could not be extended. As long as the row belongs to this attempt, no other one runs.
        await _end_lost_attempt(task, AttemptOutcome.LOST, leases.LOST_MESSAGE)
    await _end_attempt(task, AttemptOutcome.CANCELLED)


async def _store_result(attempt: Attempt, ended: AttemptResult) -> None:
    task, conversation = attempt.task, attempt.conversation
    if isinstance(ended.problem, UnknownTool):
        await _end_unknown(task, ended.problem.message)
    elif isinstance(ended.problem, Overloaded) and not attempt.has_begun:
        await return_task(task, delay=ended.problem.retry_after or RETURN_SECONDS)
    elif isinstance(ended.problem, Overloaded):
        # The tool runs again only if it may run twice.
        await _end_lost_attempt(task, AttemptOutcome.FINISHED, str(ended.problem))
    elif ended.error is not None:
        await _fail(task, ended.error["code"], ended.error["message"], ended.error.get("data"))
    elif ended.result is not None:
        await _complete(task, ended.result, attempt.take_changes())
    else:
        assert conversation is not None  # only its questions end an attempt without a result
        questions, accepted = conversation.get_questions(), conversation.accepted
        await _suspend(task, questions, accepted)


async def _end_unknown(task: Task, text: str) -> None:
    """End an attempt whose tool this process does not know.

    Another process may know it, so the task waits for some time before it fails.
    """
    if not await return_unknown_task(task, text):
        await _fail(task, InvalidParams.code, text)


async def _suspend(task: Task, questions: Sequence[store.Question], accepted: Iterable[str]) -> None:
    await repeat_write(
        lambda: store.run_on_rows(store.suspend, task.pk, task.worker, questions, accepted, task.attempts)
    )
    await publish_change(task.pk)


async def _end_attempt(task: Task, outcome: AttemptOutcome) -> None:
    """End the attempt of a task that another process has changed."""
    await repeat_write(lambda: store.run_on_rows(store.end_attempt, task.pk, task.attempts, outcome))


async def _end_lost_attempt(task: Task, outcome: AttemptOutcome, text: str) -> None:
    """End an attempt that did not reach its end. The task waits again, or fails with `text`."""
    await repeat_write(lambda: store.run_on_rows(leases.end_lost_attempt, task, outcome, text))
    await publish_change(task.pk)


async def _complete(task: Task, result: dict[str, Any], changes: dict[str, object]) -> None:
    encoded = jsonrpc.dumps(result)
    limit = get_settings().result_bytes
    if len(encoded) > limit:
        await _fail(task, InternalError.code, f"The result has {len(encoded)} bytes; at most {limit} are stored")
        return
    values = {**changes, **build_result_columns(result, encoded)}
    await store_end(store.TaskEnd(task, TaskStatus.COMPLETED, values))


async def _fail(task: Task, code: int, message: str, data: object = None) -> None:
    error = {"code": code, "message": message, **({} if data is None else {"data": data})}
    encoded, limit = jsonrpc.dumps(error), get_settings().result_bytes
    if len(encoded) > limit:
        encoded = jsonrpc.dumps({"code": code, "message": shorten_message(message, len(encoded), limit)})
    values = {"error": encoded.decode(), "status_message": message}
    await store_end(store.TaskEnd(task, TaskStatus.FAILED, values))
