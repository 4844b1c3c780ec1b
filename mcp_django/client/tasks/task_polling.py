"""Polling of a task: its questions are answered, and its messages become progress, until it ends."""

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any, Final, TypeVar

from mcp_django.aio.clock import monotonic
from mcp_django.client.errors import (
    AuthorizationNeeded,
    CallError,
    CallTimeout,
    ClientConnectionError,
    HandshakeError,
    InvalidAnswer,
    TaskCancelled,
    TaskNotFound,
)
from mcp_django.client.session.handlers import ProgressRelay
from mcp_django.client.session.timing import UNLIMITED_RETRIES, Backoff
from mcp_django.client.tasks.task_requests import MAX_TASK_INPUT_REQUESTS, TaskRequests
from mcp_django.client.tasks.task_state import ClientTaskState, is_task_result

T = TypeVar("T")

DEFAULT_POLL_SECONDS: Final = 1.0
"""Seconds between two polls if the server suggests none."""
MIN_POLL_SECONDS, MAX_POLL_SECONDS = 0.1, 60.0
"""Bounds of the suggested seconds between two polls."""
MAX_OUTAGE_SECONDS: Final = 300.0
"""Seconds for which a wait goes on without a connection to the server."""
MAX_WAIT_SECONDS: Final = 86_400.0
"""Maximum seconds of one wait, also for tasks without a limit."""
RESULT_TIMEOUT_SECONDS: Final = 5.0
"""Seconds that an open request of the result waits after the end of its task."""
CANCEL_TIMEOUT_SECONDS: Final = 5.0
"""Seconds that an abandoned call waits for its task to be cancelled."""

AnswerRequests = Callable[[dict[str, Any]], Awaitable[dict[str, Any]]]
"""Function from questions in wire format, by key, to the responses under the same keys."""


@dataclass(slots=True, eq=False)
class TaskPoller:
    """Follows one task to its end, for one waiter at a time."""

    _requests: TaskRequests
    _answer: AnswerRequests
    _progress: ProgressRelay | None = None
    state: ClientTaskState | None = None
    """The latest state; None before the first request."""
    _known_since: float = field(default_factory=monotonic)
    _lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    _answered: dict[str, bytes] = field(default_factory=dict)
    """Keys of the answered questions, with digests of the questions."""
    _reported_message: str | None = None
    _report_count: int = 0
    _result: asyncio.Future[dict[str, Any]] | None = None
    """The open `tasks/result` of the handshake era, which carries questions."""

    @property
    def id(self) -> str:
        return self._requests.id

    async def refresh(self) -> ClientTaskState:
        """Return the current state; a terminal state is final and needs no request."""
        if self.state is None or not self.state.is_terminal:
            self.state = await self._requests.get_state()
            await self._report_message(self.state)
        return self.state

    async def wait(self) -> ClientTaskState:
        """Poll until the task has ended, and answer its questions.

        Raises:
            TaskNotFound: The task is unknown, or has outlived its `ttl`.
            CallTimeout: The task has not ended within MAX_WAIT_SECONDS.
            CallError: The server's answer is invalid, or one of its questions cannot be answered.
        """
        async with self._lock:
            deadline = monotonic() + MAX_WAIT_SECONDS
            state = self.state or await self._poll()
            await self._report_message(state)
            try:
                while not state.is_terminal:
                    self._check_time(state, deadline)
                    if state.status == "input_required":
                        await self._answer_questions(state)
                    await asyncio.sleep(_get_poll_seconds(state))
                    state = await self._poll()
            except BaseException:
                self._close_result()
                raise
            return state

    async def load_result(self) -> dict[str, Any]:
        """Return the result of the ended task in wire format.

        Raises:
            CallError: The task has failed.
            TaskCancelled: The task was cancelled.
        """
        state = self.state
        assert state is not None, "the task has ended"
        if state.status == "cancelled":
            self._close_result()
            raise TaskCancelled()
        if state.error is not None:
            raise CallError(state.error["code"], state.error["message"], state.error.get("data"))
        if state.result is not None:
            return _check_result(state.result)
        return _check_result(await self._load_separate_result())

    def mark_answered(self, requests: Mapping[str, Any]) -> None:
        """Treat these questions in wire format, by key, as answered."""
        self._answered |= {key: _compute_digest(question) for key, question in requests.items()}

    async def send_responses(self, responses: dict[str, Any]) -> None:
        """Send responses to questions of the task, by key, also after an outage of the connection."""
        await self._send_through_outage(lambda: self._requests.send_responses(responses))

    async def cancel(self) -> None:
        """Request the end of the task; do nothing if it has ended."""
        if self.state is None or not self.state.is_terminal:
            await self._requests.cancel()

    async def abandon(self) -> None:
        """Cancel the task of a call without a caller, and wait for a moment; ignore failures."""
        if self.state is not None and self.state.is_terminal:
            return
        request = asyncio.ensure_future(self._requests.cancel())
        await asyncio.wait({request}, timeout=CANCEL_TIMEOUT_SECONDS)
        if request.done() and not request.cancelled():
            request.exception()
        request.cancel()

    async def _poll(self) -> ClientTaskState:
        return await self._send_through_outage(self.refresh)

    async def _send_through_outage(self, send: Callable[[], Awaitable[T]]) -> T:
        """Send a request that is safe to repeat, also after an outage of the connection."""
        backoff, failed_since = Backoff(UNLIMITED_RETRIES), monotonic()
        while True:
            try:
                return await send()
            except (AuthorizationNeeded, HandshakeError):
                raise
            except (ClientConnectionError, CallTimeout):
                if self._requests.is_closed or monotonic() - failed_since > MAX_OUTAGE_SECONDS:
                    raise
                await asyncio.sleep(backoff.next_delay() or 0)

    def _check_time(self, state: ClientTaskState, deadline: float) -> None:
        """Check the time limits of a running task."""
        now = monotonic()
        if state.ttl is not None and now > self._known_since + state.ttl:
            raise TaskNotFound(message="The task has not ended within its time to live")
        if now > deadline:
            raise CallTimeout(f"The task has not ended within {MAX_WAIT_SECONDS:g} s")

    async def _report_message(self, state: ClientTaskState) -> None:
        """Report a new status message as progress."""
        if self._progress is not None and state.message and state.message != self._reported_message:
            self._reported_message = state.message
            self._report_count += 1
            await self._progress(float(self._report_count), None, state.message)

    async def _answer_questions(self, state: ClientTaskState) -> None:
        """Answer new questions: by the open result in the handshake era, else by `tasks/update`."""
        if self._requests.is_handshake:
            self._open_result()
            return

        new_questions = self._select_new_questions(state)
        if new_questions:
            responses = await self._answer({key: state.input_requests[key] for key in new_questions})
            await self.send_responses(responses)
            self._answered |= new_questions

    def _select_new_questions(self, state: ClientTaskState) -> dict[str, bytes]:
        """Return the keys of the unanswered questions, with digests of the questions."""
        digests = {key: _compute_digest(question) for key, question in state.input_requests.items()}
        if any(self._answered.get(key, digest) != digest for key, digest in digests.items()):
            raise InvalidAnswer("The server sent two questions of one task under the same key")
        if len(self._answered.keys() | digests.keys()) > MAX_TASK_INPUT_REQUESTS:
            raise InvalidAnswer(f"The server sent more than {MAX_TASK_INPUT_REQUESTS} questions in one task")
        return {key: digest for key, digest in digests.items() if key not in self._answered}

    def _open_result(self) -> None:
        """Open the request of the handshake era that carries the questions, again if its connection broke."""
        if self._result is None or _has_lost_connection(self._result):
            self._result = asyncio.ensure_future(self._requests.load_result(is_finished=False))
            self._result.add_done_callback(_retrieve_exception)

    def _close_result(self) -> None:
        if self._result is not None:
            self._result.cancel()
            self._result = None

    async def _load_separate_result(self) -> dict[str, Any]:
        """Return the result in the handshake era, where `tasks/get` does not contain it."""
        opened = self._result
        if opened is not None:
            await asyncio.wait({opened}, timeout=RESULT_TIMEOUT_SECONDS)
            if opened.done() and not _has_lost_connection(opened):
                return opened.result()
            self._close_result()
        if not self._requests.is_handshake:
            raise InvalidAnswer("The server sent an ended task without its result")
        return await self._send_through_outage(lambda: self._requests.load_result(is_finished=True))


def _get_poll_seconds(state: ClientTaskState) -> float:
    """Return the seconds before the next poll."""
    suggested = DEFAULT_POLL_SECONDS if state.poll_interval is None else state.poll_interval
    return min(max(suggested, MIN_POLL_SECONDS), MAX_POLL_SECONDS)


def _check_result(raw: dict[str, Any]) -> dict[str, Any]:
    """Return the final result of a task. Raises InvalidAnswer for another task, or a question."""
    if is_task_result(raw) or raw.get("resultType", "complete") != "complete":
        raise InvalidAnswer("The server sent an incomplete result of an ended task")
    return raw


def _compute_digest(question: Any) -> bytes:
    return blake2b(json.dumps(question, sort_keys=True).encode(), digest_size=16).digest()


def _has_lost_connection(future: "asyncio.Future[dict[str, Any]]") -> bool:
    """Return True if a request has ended without an answer of the server."""
    return future.done() and (future.cancelled() or isinstance(future.exception(), ClientConnectionError))


def _retrieve_exception(future: "asyncio.Future[dict[str, Any]]") -> None:
    """Mark the exception of a future as retrieved."""
    if not future.cancelled():
        future.exception()
