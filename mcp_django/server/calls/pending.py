"""What the pipeline makes of a message that is not answered at once."""

from collections.abc import Coroutine
from typing import Any, NamedTuple

from mcp_django.protocol.errors import MCPError
from mcp_django.server.calls.call import Call
from mcp_django.server.calls.outcome import Outcome
from mcp_django.server.ports import Overloaded

AnyCoroutine = Coroutine[Any, Any, Any]


class Work(NamedTuple):
    """Requests whose answer has to be worked for: one, or those of a batch."""

    call: Call
    run: Coroutine[Any, Any, bytes]
    """The encoded answer. Raises MCPError or Overloaded, or is cancelled."""
    inner: tuple[AnyCoroutine, ...]
    """What `run` runs; it has to be closed too when nobody will."""
    calls: tuple[Call, ...]
    """What is answered by it."""
    may_stream: bool = True
    """False when the answer must come in one piece, because the transport has something to say beside it."""
    in_batch: bool = False
    """Is the answer that of a batch?"""
    weight: int = 1
    """How many calls in flight it counts for: each of a batch, and none where it opens a stream that has a limit of its
    own."""

    def close(self, problem: MCPError | Overloaded | None = None) -> None:
        """It will not be run: it was refused with `problem`, or given up before its first step."""
        for coroutine in (self.run, *self.inner):
            coroutine.close()
        for call in self.calls:
            over(call, Outcome.CANCELLED if problem is None else call.fate.of(problem), problem)


class Receipt(NamedTuple):
    """A notification or an answer to a question: nothing is sent back."""

    run: Coroutine[Any, Any, None] | None = None


Handled = bytes | Work | Receipt


def over(call: Call, outcome: Outcome, problem: MCPError | Overloaded | None = None) -> None:
    """Say, once, how a call ended."""
    call.outcome = outcome
    call.server.observer.over(call, outcome, problem)
