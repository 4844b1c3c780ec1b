"""Questions of a core task: sent to its client on one stream, by one process at a time.

The stream is that of a `tasks/result` request, as the specification proposes. Some clients open `tasks/result` only
after the end of a task. They get the question on the stream of their session, once they have polled for a while.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from datetime import timedelta
from typing import Any

from django.db.models import Q, QuerySet

from mcp_django import wiring
from mcp_django.contrib.tasks.models import Task, TaskInput, TaskStatus
from mcp_django.contrib.tasks.rows import database, store, wire
from mcp_django.extensions import Call, InvalidParams
from mcp_django.extensions.calls import MessageSink, Outbox, ServerSession, get_logger, jsonrpc
from mcp_django.extensions.event_loop import SessionSink, has_open_stream, monotonic, run_in_background

logger = get_logger("mcp_django.tasks")
SESSION_STREAM_SECONDS = 2.0
"""Age of a question without a `tasks/result` request at which it is sent on the stream of the session."""
CLAIM_SECONDS = 20.0
"""Seconds for which a claim on a question holds, unless its process extends it."""
EXTENSION_SECONDS = 5.0
"""Seconds between two extensions of claims, and between two checks of the stream of a session."""
CHECK_SECONDS = 1.0
"""Seconds between two reads of the row while a question is open on the stream of a session."""
FindTask = Callable[[], Awaitable[Task]]
RecordAnswers = Callable[[str, Mapping[str, Any]], Awaitable[None]]


class CoreQuestions:
    """Open questions of a task, sent to `sink`. `record` stores the answers."""

    def __init__(
        self, call: Call, session: ServerSession, id: str, sink: Outbox | MessageSink, record: RecordAnswers
    ) -> None:
        self._call = call
        self._session = session
        self._id = id
        self._sink = sink
        self._record = record
        self._requests: dict[int, asyncio.Task[None]] = {}
        self._extended = monotonic()
        """Time of the last extension of the claims."""

    async def wait(self, seconds: float) -> bool:
        """Wait up to so many seconds for the answers; return True if one is missing."""
        pending = {request for request in self._requests.values() if not request.done()}
        if pending:
            _, pending = await asyncio.wait(pending, timeout=seconds)
        return bool(pending)

    async def send(self) -> None:
        """Send the open questions that no other stream has sent."""
        rows = await store.run_on_rows(claim_questions, self._id)
        for row in rows:
            self._requests[row.pk] = asyncio.ensure_future(self._send_request(row))

    async def extend_claims(self) -> bool:
        """Extend the claims on the unanswered questions, if it is time for that; return True if it was.

        Without extensions other streams may send the questions: this process or its stream is gone.
        """
        if monotonic() - self._extended < EXTENSION_SECONDS:
            return False
        self._extended = monotonic()
        pending = [pk for pk, request in self._requests.items() if not request.done()]
        if pending:
            await store.run_on_rows(_extend_claims, pending)
        return True

    def cancel(self) -> None:
        """Cancel the requests that have no answer. Other streams may send their questions again."""
        for request in self._requests.values():
            request.cancel()

    def _get_seconds(self) -> float:
        return self._call.server.options.conversation_limits.elicitation_timeout

    async def _send_request(self, row: TaskInput) -> None:
        session, replies = self._session, self._call.server.ports.pending_requests
        request = jsonrpc.loads(row.request)
        params = {**request.get("params", {})}
        params["_meta"] = {**params.get("_meta", {}), **wire.build_related_meta(self._id)}
        try:
            async with replies.accept_forwarded(session):
                reply = await session.send_request(
                    self._sink, replies.new_id(session), request["method"], params, timeout=self._get_seconds()
                )
        except BaseException as problem:
            await store.run_on_rows(_release_question, row.pk)
            if isinstance(problem, asyncio.CancelledError):
                raise
            if not isinstance(problem, TimeoutError):
                logger.warning("A question of a task could not be sent", exc_info=True)
            return
        await self._record(self._id, {row.key: _read_reply(reply)})


def _read_reply(reply: jsonrpc.Response) -> dict[str, Any] | store.Refusal:
    """Return the answer of a client: an object, or its error."""
    if reply.error is not None:
        return store.Refusal(str(reply.error.get("message") or "The client refused the request"))
    return reply.result if type(reply.result) is dict else {}


def ask_on_session_stream(call: Call, task: Task, find: FindTask, record: RecordAnswers) -> None:
    """Send the questions of a task on the stream of the session, in the background.

    Sends nothing while the questions are young: most clients open `tasks/result` after their first poll.
    """
    session = call.session
    age = database.now() - task.updated
    if session is None or not call.connection.supports_streaming or age < timedelta(seconds=SESSION_STREAM_SECONDS):
        return
    run_in_background(_ask_until_answered(call, session, task.pk, find, record))


async def _ask_until_answered(
    call: Call, session: ServerSession, id: str, find: FindTask, record: RecordAnswers
) -> None:
    publisher = wiring.get_services().event_publisher
    questions = CoreQuestions(call, session, id, SessionSink(publisher, session), record)
    try:
        if await store.run_on_rows(has_unsent_questions, id) and await has_open_stream(publisher, session):
            await questions.send()
        while await questions.wait(CHECK_SECONDS) and (await find()).status == TaskStatus.INPUT_REQUIRED:
            if await questions.extend_claims() and not await has_open_stream(publisher, session):
                break  # another stream, or the next one of this session, may send them
    except InvalidParams:
        pass  # the task has expired
    except Exception:
        logger.warning("The questions of a task could not be sent", exc_info=True)
    finally:
        questions.cancel()


def _find_unsent(id: str) -> QuerySet[TaskInput]:
    """Return the open questions that no stream has claimed."""
    is_unsent = Q(asked=None) | Q(asked__lt=database.now() - timedelta(seconds=CLAIM_SECONDS))
    return TaskInput.objects.filter(is_unsent, task=id, closed=None)


def has_unsent_questions(id: str) -> bool:
    """Return True if no stream has claimed some question."""
    return _find_unsent(id).exists()


def claim_questions(id: str) -> list[TaskInput]:
    """Claim the open questions that no stream has claimed."""
    unsent = _find_unsent(id)
    now = database.now()
    return [row for row in unsent.order_by("pk") if unsent.filter(pk=row.pk).update(asked=now)]


def _extend_claims(keys: list[int]) -> None:
    TaskInput.objects.filter(pk__in=keys, closed=None).update(asked=database.now())


def _release_question(pk: int) -> None:
    """Let another stream send a question again."""
    TaskInput.objects.filter(pk=pk, closed=None).update(asked=None)
