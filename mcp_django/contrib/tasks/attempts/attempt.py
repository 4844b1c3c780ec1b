"""Attempts: one run of a tool for a task.

An attempt is a message of its own: it passes through the pipeline of the server, with its middleware, the permission
decision and the observation of calls. `TaskEra` gives it a call built from the row, and a conversation of its own.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, NamedTuple

from django.utils import timezone, translation

from mcp_django.contrib.tasks.attempts.callers import describe_call
from mcp_django.contrib.tasks.attempts.conversation import TaskConversation
from mcp_django.contrib.tasks.attempts.ends import repeat_write
from mcp_django.contrib.tasks.attempts.heartbeats import TaskLease
from mcp_django.contrib.tasks.models import Task
from mcp_django.contrib.tasks.options import get_settings
from mcp_django.contrib.tasks.rows import store
from mcp_django.contrib.tasks.rows.wire import PROGRESS_METHOD
from mcp_django.protocol import jsonrpc
from mcp_django.protocol.errors import InternalError, MCPError
from mcp_django.protocol.log_text import get_logger
from mcp_django.protocol.revisions import REVISIONS
from mcp_django.server.calls.call import Call, Connection, EraStrategy
from mcp_django.server.calls.message_queue import Outbox
from mcp_django.server.calls.outcome import CallRecord
from mcp_django.server.context.notifications import LOG_MESSAGE_METHOD
from mcp_django.server.execution.result_size import get_max_bytes
from mcp_django.server.pipeline import Pipeline
from mcp_django.server.ports import Overloaded, Principal
from mcp_django.server.server import Server
from mcp_django.transports.inprocess.exchange import run_request

logger = get_logger("mcp_django.tasks")
TOOLS_CALL = "tools/call"
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
        """Run the tool in the language and time zone of the task. Raises CancelledError only."""
        context = self.task.get_context()
        if self.is_stored:
            self._base = context.get("rounds", {})
            if self.task.attempts > 1:  # the first attempt of a row has no answers and steps to read
                self._stored = await store.run_on_rows(store.read_conversation, self.task.pk)
        if context["language"] is None:
            translation.deactivate_all()
        else:
            translation.activate(context["language"])
        timezone.activate(context["time_zone"])
        return await self._run_message(context)

    async def _run_message(self, context: dict[str, Any]) -> AttemptResult:
        pipeline, revision = Pipeline(self._server), REVISIONS[self.task.revision]
        era = TaskEra(pipeline.eras[revision.era], self)
        connection = Connection(self._principal, url_kwargs=context["url_kwargs"] or None)
        outbox = Outbox()
        outbox.redirect_to(_StatusSink(self))
        outbox.loop = asyncio.get_running_loop()
        params = {"name": self.task.tool, "arguments": jsonrpc.loads(self.task.arguments)}
        raw = {"jsonrpc": "2.0", "id": self.task.pk, "method": TOOLS_CALL, "params": params}

        try:
            result = await run_request(pipeline, era, raw, connection, outbox)
        except MCPError as problem:
            problem.request_id = self.task.pk
            return AttemptResult(problem=problem, error=jsonrpc.loads(pipeline.encode_error(era, problem))["error"])
        except Overloaded as problem:
            return AttemptResult(problem=problem, error={"code": InternalError.code, "message": str(problem)})
        finally:
            outbox.finish()
        if self.conversation is not None and self.conversation.needs_another_round:
            return AttemptResult()
        return AttemptResult(result=result)

    def create_call(self, era: "TaskEra", message: Any, connection: Connection, outbox: Outbox) -> Call:
        """Create the call of the run, and its conversation."""
        context = self.task.get_context()
        record = CallRecord()
        record.is_continued = True
        record.attempt = self
        record.linked_span = context.get("span")
        call = Call(
            message,
            revision=REVISIONS[self.task.revision],
            era=era,
            connection=connection,
            server=self._server,
            outbox=outbox,
            capabilities=context["capabilities"],
            client_info=context["client_info"],
            meta={"progressToken": self.task.pk, **context["trace"]},
            log_level="info",
            record=record,
        )
        self.conversation = TaskConversation(call, self.binding, self._base, self._stored, self._record_step)
        self.conversation.missing_stream = context.get("missing_stream")
        return call

    async def _record_step(self, key: str, value: Any) -> None:
        encoded = jsonrpc.dumps(value).decode()
        if not self.is_stored:
            self.unsaved_steps[key] = encoded
            return
        task, executor = self.task, self._server.executor
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

        if self.is_over() or not await self._server.executor.run(commit):
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


class TaskEra:
    """Strategy of an era for attempts: the call comes from the row. See `calls.call.EraStrategy`."""

    def __init__(self, inner: EraStrategy, attempt: Attempt) -> None:
        self.name = inner.name
        self._inner = inner
        self._attempt = attempt

    def parse(self, raw: Any, connection: Connection) -> jsonrpc.Message | list[Any]:
        return jsonrpc.read(raw)

    def create_call(
        self, message: jsonrpc.Request | jsonrpc.Notification, connection: Connection, outbox: Outbox
    ) -> Call:
        return self._attempt.create_call(self, message, connection, outbox)

    def check(self, call: Call) -> None:
        return None

    def add_result_fields(self, call: Call, body: dict[str, Any], *, private: bool = True) -> dict[str, Any]:
        return self._inner.add_result_fields(call, body, private=private)

    def add_round_fields(self, call: Call, body: dict[str, Any]) -> dict[str, Any]:
        return body

    def get_http_status(self, problem: MCPError) -> int:
        return self._inner.get_http_status(problem)

    def resume_conversation(self, call: Call) -> TaskConversation | None:
        return self._attempt.conversation

    def start_conversation(self, call: Call) -> TaskConversation | None:
        return self._attempt.conversation


class _StatusSink:
    """Sink for the messages of an attempt: progress and logs become the status of the task."""

    def __init__(self, attempt: Attempt) -> None:
        self._attempt = attempt

    async def put(self, message: bytes) -> None:
        self.put_nowait(message)

    def put_nowait(self, message: bytes) -> None:
        decoded = jsonrpc.loads(message)
        params = decoded.get("params") or {}
        if decoded.get("method") == PROGRESS_METHOD:
            changes = {"progress": params["progress"], "total": params.get("total")}
            if "message" in params:
                changes["status_message"] = params["message"]
            self._attempt.report(**changes)
        elif decoded.get("method") == LOG_MESSAGE_METHOD:
            data = params["data"]
            text = data if isinstance(data, str) else jsonrpc.dumps(data).decode()
            self._attempt.report(status_message=text)

    def has_room(self) -> bool:
        return True

    def finish(self, message: bytes | None = None) -> None:
        return None

    def abort(self) -> None:
        return None

    def put_cancellation(self, message: bytes) -> None:
        return None

    def disconnect_reader(self, retry: float | None) -> bool:
        return False


def describe_task_call(call: Call, rounds: Mapping[str, Any]) -> str:
    """Return the context of a new task as encoded JSON.

    `rounds` is the state of the rounds before the task.
    """
    return jsonrpc.dumps({**describe_call(call), "rounds": dict(rounds)}).decode()


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
