"""How a call ends, and what is noted of it on the way there."""

from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final
from weakref import ReferenceType

from mcp_django.protocol.errors import MCPError
from mcp_django.protocol.trace_context import TraceContext
from mcp_django.server.ports import Overloaded

if TYPE_CHECKING:
    from mcp_django.server.context.background import Job


class Outcome(StrEnum):
    """How a call ended."""

    OK = "ok"
    TOOL_ERROR = "tool_error"
    """The tool said why it failed, or its arguments did not fit."""
    INPUT_REQUIRED = "input_required"
    """A round ended with questions (stateless era)."""
    ERROR = "error"
    """A protocol error: unknown, not allowed, malformed."""
    BUG = "bug"
    """An exception that nobody expected; it is in the log under the reference."""
    TIMEOUT = "timeout"
    CANCELLED = "cancelled"
    """The client or the server gave it up."""
    OVERLOADED = "overloaded"
    """Refused, or broken off, because a limit is reached."""


class _Unread:
    """The trace context was not asked for yet."""


UNREAD: Final = _Unread()


class Fate:
    """What is noted of a call while it runs. The calls that middleware makes of a call share its fate."""

    # On the class, because most calls need none of them: making a fate costs every call.
    failure: Outcome | None = None
    """What lies behind an error, where its form does not tell: a bug, a timeout."""
    reference: str | None = None
    """The one that a bug's answer and the log have."""
    trace: TraceContext | _Unread | None = UNREAD
    """The client's, once it was asked for."""
    trace_id: str | None = None
    """The trace that the call's own span is in."""

    conversation: "ReferenceType[Any] | None" = None
    """Its questions, in the era where a handler repeats itself."""
    forwarded: int = 0
    """Log records that were sent to the client."""
    around: "Fate | None" = None
    """That of the call in which a tool is used by the client's model."""
    jobs: "list[Job] | None" = None
    """What is to be done when the call is answered."""
    answered: bool = False
    """Were they taken?"""

    @property
    def replaying(self) -> bool:
        """Does the handler repeat what the client has heard in an earlier round?"""
        talk = None if self.conversation is None else self.conversation()
        return talk is not None and talk.replaying

    def leave(self, jobs: "list[Job]") -> None:
        """Have `jobs` done when the call is answered. Raises RuntimeError when they were taken already."""
        if self.around is not None:
            self.around.leave(jobs)
        elif self.answered:
            raise RuntimeError("The call was answered before this background work was left")
        else:
            self.jobs = [*(self.jobs or ()), *jobs]

    def take_jobs(self) -> "list[Job]":
        """What is to be done now. Asked once."""
        self.answered = True
        jobs, self.jobs = self.jobs, None
        return jobs or []

    def failed(self, failure: Outcome, reference: str | None = None) -> None:
        """Note what lies behind the error that will be the answer."""
        self.failure, self.reference = failure, reference

    def of(self, problem: MCPError | Overloaded) -> Outcome:
        """The outcome of a call that ends with this."""
        if isinstance(problem, Overloaded):
            return Outcome.OVERLOADED
        return self.failure or Outcome.ERROR
