"""Attempts: one run of a tool for a task.

An attempt is a stored call (`mcp_django.extensions.stored_calls`) with a conversation from rows and a lease.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, NamedTuple

from mcp_django.contrib.tasks.attempts.callers import describe_task_context
from mcp_django.contrib.tasks.attempts.conversation import TaskConversation
from mcp_django.contrib.tasks.attempts.ends import repeat_write
from mcp_django.contrib.tasks.attempts.heartbeats import TaskLease
from mcp_django.contrib.tasks.models import Task
from mcp_django.contrib.tasks.options import get_settings
from mcp_django.contrib.tasks.rows import store
from mcp_django.contrib.tasks.rows.wire import PROGRESS_METHOD
from mcp_django.extensions import Call
from mcp_django.extensions.calls import LOG_MESSAGE_METHOD, Principal, Server, get_logger, get_max_bytes, jsonrpc
from mcp_django.extensions.errors import InternalError, MCPError, Overloaded
from mcp_django.extensions.stored_calls import StoredCall, StoredCallRun

logger = get_logger("mcp_django.tasks")
MIN_WRITE_SECONDS = 1.0
"""Minimum seconds between two writes of the progress."""
LOST_TEXT = "The attempt has lost its lease"


class AttemptResult(NamedTuple):
    """The end of a run: a result, an error, or neither for a run that waits for input."""

    result: dict[str, Any] | None = None
    problem: MCPError | Overloaded | None = None
    error: dict[str, Any] | None = None
    """The error on the wire."""


class Attempt:
    """Run of the tool of a task. `task` may be a row that is not saved yet."""

    def __init__(
        self, task: Task, server: Server, principal: Principal, *, base: Mapping[str, Any] | None = None
    ) -> None:
        self.task = task
        self.conversation: TaskConversation | None = None
        self.is_stored = base is None
        """True once the task has a row."""
        self.unsaved_steps: dict[str, str] = {}
        """Steps that were recorded before the task had a row."""
        self.binding = b""
        """Binding of the state that a round before the task has."""
        self.lease: TaskLease | None = None
        """The lease of the row; None before the task has one."""
        self.has_begun = False
        """True once the function of the tool, or one of its dependencies, has been called."""
        self.has_confirmed = False
        """True if a transaction of the tool was about to be committed."""
        self._server = server
        self._principal = principal
        self._base = dict(base or {})
        self._stored = store.StoredConversation([], {})
        self._changes: dict[str, Any] = {}
        self._changed = asyncio.Event()

    @property
    def may_repeat(self) -> bool:
        """True if the tool may run again after this attempt."""
        return self.is_stored and self.task.losses < self.task.max_losses

    async def execute(self) -> AttemptResult:
        """Run the tool. Raises CancelledError only."""
        context = self.task.get_context()
        if self.is_stored:
            self._base = context.get("rounds", {})
            if self.task.attempts > 1:  # the first attempt of a row has no answers and steps to read
                self._stored = await store.run_on_rows(store.read_conversation, self.task.pk)
        stored = StoredCall(
            id=self.task.pk,
            server=self.task.server,
            tool=self.task.tool,
            arguments=jsonrpc.loads(self.task.arguments),
            revision=self.task.revision,
            context=context,
        )
        run = StoredCallRun(
            self._server,
            self._principal,
            stored,
            on_message=self._report_message,
            create_conversation=self._create_conversation,
            attempt=self,
        )
        try:
            result = await run.run()
        except MCPError as problem:
            return AttemptResult(problem=problem, error=run.build_error(problem))
        except Overloaded as problem:
            return AttemptResult(problem=problem, error={"code": InternalError.code, "message": str(problem)})
        if self.conversation is not None and self.conversation.needs_another_round:
            return AttemptResult()
        return AttemptResult(result=result)

    def _create_conversation(self, call: Call) -> TaskConversation:
        self.conversation = TaskConversation(call, self.binding, self._base, self._stored, self._record_step)
        self.conversation.missing_stream = self.task.get_context().get("missing_stream")
        return self.conversation

    async def _record_step(self, key: str, value: Any) -> None:
        encoded = jsonrpc.dumps(value).decode()
        if not self.is_stored:
            self.unsaved_steps[key] = encoded
            return
        task, executor = self.task, self._server.ports.executor
        if executor.is_in_transaction():
            # On the thread of the call: the step and its record are in the same transaction.
            is_held = await executor.run(store.record_step, task.pk, task.worker, key, encoded)
        else:
            # The step has had its effect, so its record outlasts an outage.
            is_held = await repeat_write(
                lambda: store.run_on_rows(store.record_step, task.pk, task.worker, key, encoded)
            )
        if not is_held:
            raise asyncio.CancelledError(LOST_TEXT)

    def is_over(self) -> bool:
        """Return True if the attempt may write nothing more. Thread-safe."""
        return self.lease is not None and self.lease.is_over()

    async def confirm(
        self, databases: Sequence[str], call: Call, build_result: Callable[[], dict[str, Any]] | None
    ) -> None:
        """Store the result in the transaction of the tool, if the row still belongs to this attempt.

        A process that dies after the commit therefore loses no result, and no other attempt commits as well. Where the
        tasks are in another database, the row is only read before the commit. Raises CancelledError.
        """
        if not self.is_stored:
            return
        values: dict[str, Any] = {}
        task, lease, is_same_database = self.task, self.lease, store.get_alias() in databases
        if build_result is not None and is_same_database:
            values = _encode_result(call, build_result())

        def commit() -> bool:
            is_held = store.commit_result(task.pk, task.worker, values)
            if is_held and values and lease is not None:
                # On this thread: the loop may be blocked until after the deadline. Without a result the attempt goes on
                # after the commit, as that of a tool that calls this one, so its deadline counts.
                lease.is_confirmed = True
            return is_held

        if self.is_over() or not await self._server.ports.executor.run(commit):
            raise asyncio.CancelledError(LOST_TEXT)
        self.has_confirmed = is_same_database

    def keep_result(self, call: Call, build_result: Callable[[], dict[str, Any]]) -> None:
        """Keep the result of a plain function for the heartbeats, which store it if the loop is blocked.

        A result that cannot be built is an error, which the loop stores.
        """
        if not self.is_stored or self.lease is None:
            return
        try:
            values = _encode_result(call, build_result())
        except Exception:
            return
        self.lease.result = values or None

    def take_changes(self) -> dict[str, Any]:
        """Return the progress that is not written yet, as columns."""
        changes = self._changes
        self._changes = {}
        return changes

    def record_growth(self, changes: Mapping[str, Any]) -> bool:
        """Record written progress; return False if it is not above that of all attempts.

        An attempt that runs again starts from the beginning, but progress on the wire only increases.
        """
        progress, last = changes.get("progress"), self.task.progress
        if progress is None or (last is not None and progress <= last):
            return False
        self.task.progress = progress
        return True

    def report(self, **changes: Any) -> None:
        """Set the progress or the status message, to be written soon."""
        if "status_message" in changes:
            changes["status_message"] = store.clean_message(changes["status_message"])
        self._changes.update(changes)
        self._changed.set()

    def _report_message(self, message: dict[str, Any]) -> None:
        """Make progress and log messages the status of the task."""
        params = message.get("params") or {}
        if message.get("method") == PROGRESS_METHOD:
            changes = {"progress": params["progress"], "total": params.get("total")}
            if "message" in params:
                changes["status_message"] = params["message"]
            self.report(**changes)
        elif message.get("method") == LOG_MESSAGE_METHOD:
            data = params["data"]
            self.report(status_message=data if isinstance(data, str) else jsonrpc.dumps(data).decode())

    async def write_changes(self, on_change: Callable[[dict[str, Any]], Awaitable[None]]) -> None:
        """Write the progress, at most once in `MIN_WRITE_SECONDS`, until the lease is lost.

        `on_change` is awaited with the columns after each write. Failed writes are repeated.
        """
        while True:
            await self._changed.wait()
            self._changed.clear()
            changes = self.take_changes()
            try:
                if not await store.run_on_rows(store.write_progress, self.task.pk, self.task.worker, changes):
                    return
                await on_change(changes)
            except Exception:
                logger.warning("The progress of a task could not be written; it is repeated", exc_info=True)
                self._changes = {**changes, **self._changes}
                self._changed.set()
            await asyncio.sleep(MIN_WRITE_SECONDS)


def describe_task_call(call: Call, rounds: Mapping[str, Any]) -> str:
    """Return the context of a new task as encoded JSON.

    `rounds` is the state of the rounds before the task.
    """
    return jsonrpc.dumps({**describe_task_context(call), "rounds": dict(rounds)}).decode()


def _encode_result(call: Call, body: dict[str, Any]) -> dict[str, Any]:
    """Return the columns of the result of a call; empty if it is too large to be stored."""
    encoded = jsonrpc.dumps(call.era.add_result_fields(call, body))
    limit = min(get_max_bytes(call), get_settings().result_bytes)
    return build_result_columns(body, encoded) if len(encoded) <= limit else {}


def build_result_columns(result: Mapping[str, Any], encoded: bytes) -> dict[str, Any]:
    """Return the columns of a result; `encoded` is its JSON."""
    columns: dict[str, Any] = {"result": encoded.decode(), "is_error": bool(result.get("isError"))}
    if columns["is_error"]:
        # Clients of core tasks that do not read the result of a failed task show this message.
        text = next((block["text"] for block in result.get("content", ()) if block.get("type") == "text"), "")
        columns["status_message"] = store.clean_message(text)
    return columns
