"""Results of the pipeline for messages that it does not answer at once."""

from collections.abc import Coroutine
from typing import Any, NamedTuple

from mcp_django.protocol.errors import MCPError
from mcp_django.server.calls.call import Call
from mcp_django.server.ports import Outcome, Overloaded

AnyCoroutine = Coroutine[Any, Any, object]


class PendingResponse(NamedTuple):
    """Response still to be computed, for one request or for a batch."""

    call: Call
    run: Coroutine[Any, Any, bytes]
    """Coroutine of the encoded response. Raises MCPError or Overloaded."""
    nested: tuple[AnyCoroutine, ...]
    """Coroutines that `run` awaits; closed together with it if it never runs."""
    calls: tuple[Call, ...]
    """Calls that the response answers."""
    can_stream: bool = True
    """False if the response must be a single body, as the transport adds headers."""
    is_batch: bool = False
    """True for the response to a batch."""
    call_count: int = 1
    """Number of running calls it counts for.

    Each call of a batch counts. Zero for a request that opens a stream with a limit of its own.
    """

    def close(self, problem: MCPError | Overloaded | None = None) -> None:
        """Close the coroutines of a response that was refused or cancelled early."""
        for coroutine in (self.run, *self.nested):
            coroutine.close()
        for call in self.calls:
            conclude_call(call, Outcome.CANCELLED if problem is None else call.record.get_outcome(problem), problem)


class Acknowledgement(NamedTuple):
    """Acknowledgement of a notification or of a client's response: no reply is sent."""

    run: Coroutine[Any, Any, None] | None = None


PipelineResult = bytes | PendingResponse | Acknowledgement


def conclude_call(call: Call, outcome: Outcome, problem: MCPError | Overloaded | None = None) -> None:
    """Record the outcome of a call and inform the observer, once per call."""
    call.record.outcome = outcome
    call.server.ports.observer.record_outcome(call, outcome, problem)
