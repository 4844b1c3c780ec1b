"""Steps that run once although their handler runs several times: `ctx.run_once`.

A plain step is recorded in the conversation: the following rounds skip it, but a repeated round runs it again. For a
durable step, a row is claimed before the step runs. It starts at most once, whatever the client or the network does
(basic/patterns/mrtr: the state alone does not prevent a replay).
"""

import asyncio
import hashlib
from collections.abc import Awaitable, Callable
from typing import Any

from mcp_django.protocol import jsonrpc
from mcp_django.protocol.errors import ToolError
from mcp_django.protocol.jsonrpc import JSONObject
from mcp_django.protocol.log_text import get_logger
from mcp_django.server.calls.call import Call, get_request_identity

logger = get_logger("mcp_django.server")

RunStep = Callable[[], Awaitable[object]]
OUTCOME_WAIT_SECONDS = 10.0
"""Seconds that a second attempt waits for the first one to finish."""
CHECK_INTERVALS_SECONDS = 0.05, 0.5
"""Seconds between two checks: initial and maximum value."""

ONCE_IN_TRANSACTION_MESSAGE = (
    "The effects of run_once(durable=True) could be rolled back with the surrounding transaction, and the step would "
    "not run again. Declare the handler with atomic=False, and use transaction.atomic() inside the function"
)


class OutcomeUnknown(ToolError):
    """The step was started before and its result is unknown, so it does not run again."""


class RunOnceKeys:
    """Keys of `run_once` in one run of a handler.

    A repeated key is an error: the second step must not be skipped silently.
    """

    def __init__(self) -> None:
        self._seen: set[str] = set()

    def claim(self, key: str) -> None:
        if key in self._seen:
            raise ValueError(
                f"run_once({key!r}) already ran in this call; make the key unique, for example with the loop variable"
            )
        self._seen.add(key)


def round_trip_json(value: object) -> Any:
    """Convert a value to JSON and back, so that both eras lose the same types."""
    return jsonrpc.loads(jsonrpc.dumps(value))


async def run_at_most_once(call: Call, conversation_id: str, key: str, run: RunStep, *, ttl: float) -> Any:
    """Return the JSON value of `run`, which starts at most once in any process.

    The caller, server, primitive, conversation and `key` identify the step. The value is stored for `ttl` seconds.

    Raises the exceptions of `run`. A later attempt gets the same value or the same ToolError. It gets OutcomeUnknown if
    `run` raised another exception, was cancelled, or died with its process.
    """
    store = call.server.ports.idempotency_store
    name = hashlib.sha256(jsonrpc.dumps_sorted([*get_request_identity(call), conversation_id, key])).hexdigest()
    if not await store.claim(name, owner=call.principal.key, ttl=ttl):
        return _replay_outcome(key, await _wait_for_outcome(call, name))
    try:
        value = round_trip_json(await run())
    except asyncio.CancelledError:
        store.mark_unknown(name)
        raise
    except Exception as problem:
        await _store_outcome(call, name, {"error": str(problem)} if isinstance(problem, ToolError) else {})
        raise
    await _store_outcome(call, name, {"value": value})
    return value


async def _store_outcome(call: Call, name: str, outcome: JSONObject) -> None:
    try:
        await call.server.ports.idempotency_store.record_outcome(name, outcome)
    except Exception:
        # The step took effect, and this call can continue with its value.
        logger.exception("Outcome of a durable step not stored; it counts as unknown")


async def _wait_for_outcome(call: Call, name: str) -> JSONObject | None:
    """Wait for the outcome of the first attempt; None if it stays unknown."""
    call.server.ports.executor.release_thread()
    pause, max_pause = CHECK_INTERVALS_SECONDS
    loop = asyncio.get_running_loop()
    store = call.server.ports.idempotency_store
    with call.claim_wait() as may_wait:
        deadline = loop.time() + (OUTCOME_WAIT_SECONDS if may_wait else 0)
        while (outcome := await store.get_outcome(name)) is None and loop.time() < deadline:
            await asyncio.sleep(pause)
            pause = min(2 * pause, max_pause)
    return outcome


def _replay_outcome(key: str, outcome: JSONObject | None) -> object:
    if outcome is not None and "value" in outcome:
        return outcome["value"]
    if outcome is not None and "error" in outcome:
        raise ToolError(outcome["error"])
    state = "was started before and has not finished" if outcome is None else "was started before and failed"
    raise OutcomeUnknown(f"The step {key!r} {state}; it does not run again. Check whether it took effect")
