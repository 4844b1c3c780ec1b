"""Mutable record of a call."""

from collections.abc import Iterator
from contextlib import contextmanager
from time import perf_counter
from typing import TYPE_CHECKING, Any, Final
from weakref import ReferenceType

from mcp_django.protocol.errors import MCPError
from mcp_django.protocol.trace_context import TraceContext
from mcp_django.server.ports import AttemptControl, Outcome, Overloaded

if TYPE_CHECKING:
    from mcp_django.server.calls.background import BackgroundJob


class _UnreadTrace:
    """Marker for a trace context that has not been parsed yet."""


UNREAD_TRACE: Final = _UnreadTrace()


THREAD = "thread"
"""Value of `CallRecord.waits_for` in the queue for a thread."""
REMOTE_PREFIX = "server:"
"""Start of `CallRecord.waits_for` during a request to a remote server."""
MAX_WAITS = 100
"""Maximum waits of a call that its record keeps. The later ones are counted."""


def is_question(cause: str) -> bool:
    """Return True if the cause of a wait is a request to the client."""
    return cause != THREAD and not cause.startswith(REMOTE_PREFIX)


class Wait:
    """Wait of a call. Times are those of `time.perf_counter`."""

    __slots__ = ("cause", "end", "key", "start")

    def __init__(self, cause: str, key: str | None = None) -> None:
        self.cause = cause
        """Cause, as in `CallRecord.waits_for`."""
        self.key = key
        """Name that the author gave to the question; None without one."""
        self.start = perf_counter()
        self.end: float | None = None
        """End of the wait; None if it lasts until the end of the call."""

    @property
    def is_question(self) -> bool:
        """Return True for a request to the client."""
        return is_question(self.cause)


_NO_WAITS: list[Wait] = []
"""Waits of a record without any. It stays empty."""


class CallRecord:
    """Mutable record of one call. Copies of the call made by middleware share it."""

    # Defaults live on the class: most calls need none of them, and each instance attribute costs every call. The error
    # of a call is not kept: its traceback refers to the record, and such a cycle would cost the garbage collector.
    cancelled: bool = False
    """True once the client, the server or a time limit has cancelled the call."""
    outcome: Outcome | None = None
    """Outcome of the call; None while it runs."""
    failure: Outcome | None = None
    """Cause of an error whose type does not show it: a bug or a timeout."""
    reference: str | None = None
    """Reference that the response and the log of a bug share."""
    trace: TraceContext | _UnreadTrace | None = UNREAD_TRACE
    """Trace context of the client, once parsed."""
    trace_id: str | None = None
    """Id of the trace that contains the call's own span."""
    linked_span: str | None = None
    """`traceparent` of the span of an earlier call that this call continues."""

    conversation: "ReferenceType[Any] | None" = None
    """Weak reference to the replayed conversation, in the stateless era."""
    forwarded_log_count: int = 0
    """Number of log records sent to the client."""
    outer_record: "CallRecord | None" = None
    """Record of the outer call, if the client's model uses a tool in it."""
    target: str | None = None
    """Key of the tool, prompt, resource or template that the call uses.

    None until it is found and permitted.
    """
    waits: list[Wait] = _NO_WAITS
    """First waits of the call, in the order of their start."""
    wait_count: int = 0
    """Number of all waits."""
    conversation_id: str | None = None
    """Id of the conversation with the client that this call continues or leaves open; None without one."""
    round: int = 0
    """Number of this call among the rounds of its conversation, from 1; 0 without a conversation."""
    response_bytes: int | None = None
    """Bytes of the encoded result; None for an error."""
    _open_waits: list[Wait] = _NO_WAITS
    progress: "tuple[float, float | None] | None" = None
    """Progress that the call reported last, and its total."""
    jobs: "list[BackgroundJob] | None" = None
    """Background jobs to run after the response."""
    is_continued: bool = False
    """True if an earlier call counted this use of the tool, and the extensions of the server have seen it."""
    max_result_bytes: int | None = None
    """Maximum bytes of the answer that the called tool sets; None for the server's limit."""
    attempt: AttemptControl | None = None
    """Attempt of a stored task, for which the call runs; None for an ordinary call."""
    answered: bool = False
    """True once the background jobs were taken."""

    @property
    def waits_for(self) -> str | None:
        """Cause of the latest wait that goes on; None while the call runs its own code.

        The method of a request to the client, `THREAD`, or `REMOTE_PREFIX` with the name of a server.
        """
        latest = self._open_waits[-1:]  # a slice, because another thread may end the wait meanwhile
        return latest[0].cause if latest else None

    @contextmanager
    def wait(self, cause: str, key: str | None = None) -> Iterator[None]:
        """Record a wait for the time of a `with` block."""
        wait = self.start_wait(cause, key)
        try:
            yield
        finally:
            self.end_wait(wait)

    def start_wait(self, cause: str, key: str | None = None) -> Wait:
        """Record the start of a wait, which any thread may end.

        Threads of the call may start waits at the same time.
        """
        wait = Wait(cause, key)
        waits: list[Wait] = vars(self).setdefault("waits", [])
        self.wait_count += 1
        if len(waits) < MAX_WAITS:
            waits.append(wait)
        vars(self).setdefault("_open_waits", []).append(wait)
        return wait

    def end_wait(self, wait: Wait) -> None:
        """Record that a wait ends now."""
        wait.end = perf_counter()
        self._open_waits.remove(wait)

    @property
    def replaying(self) -> bool:
        """True while the handler repeats a round whose messages the client already has."""
        conversation = None if self.conversation is None else self.conversation()
        return conversation is not None and conversation.replaying

    def add_jobs(self, jobs: "list[BackgroundJob]") -> None:
        """Add background jobs to run after the response.

        Raises RuntimeError if the jobs were already taken.
        """
        if self.outer_record is not None:
            self.outer_record.add_jobs(jobs)
        elif self.answered:
            raise RuntimeError("The call was answered before this background work was added")
        else:
            self.jobs = [*(self.jobs or ()), *jobs]

    def take_jobs(self) -> "list[BackgroundJob]":
        """Return the background jobs to run now. Called once."""
        self.answered = True
        jobs = self.jobs
        self.jobs = None
        return jobs or []

    def set_failure(self, failure: Outcome, reference: str | None = None) -> None:
        """Record the cause of the error that becomes the response."""
        self.failure = failure
        self.reference = reference

    def get_outcome(self, problem: MCPError | Overloaded) -> Outcome:
        """Return the outcome of a call that ends with `problem`."""
        if isinstance(problem, Overloaded):
            return Outcome.OVERLOADED
        return self.failure or Outcome.ERROR
