"""Steps that run once although their handler runs several times: `ctx.run_once`.

A plain step is recorded in the conversation: the following rounds skip it, but a repeated round runs it again. For a
durable step, a row is claimed before the step runs. It starts at most once, whatever the client or the network does
(basic/patterns/mrtr: the state alone does not prevent a replay).
"""

import asyncio
import hashlib
import logging
from collections.abc import Awaitable, Callable
from typing import Any

from mcp_django.protocol import jsonrpc
from mcp_django.protocol.errors import ToolError
from mcp_django.protocol.headers import NAMED
from mcp_django.server.calls.call import Call

logger = logging.getLogger("mcp_django.server")

Run = Callable[[], Awaitable[Any]]
WAIT = 10.0
"""Seconds that a second attempt waits for the first one to finish."""
LOOK_EVERY = 0.05, 0.5
"""Seconds between two checks: initial and maximum value."""

ONCE_IN_TRANSACTION = (
    "The effects of run_once(durable=True) could be rolled back with the surrounding transaction, and the step would "
    "not run again. Declare the handler with atomic=False, and use transaction.atomic() inside the function"
)


class OutcomeUnknown(ToolError):
    """The step was started before and its result is unknown, so it does not run again."""


class OnceKeys:
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


def through_json(value: Any) -> Any:
    """Convert a value to JSON and back, so that both eras lose the same types."""
    return jsonrpc.loads(jsonrpc.dumps(value))


async def at_most_once(call: Call, flow: str, key: str, run: Run, *, ttl: float) -> Any:
    """Return the JSON value of `run`, which starts at most once in any process.

    The caller, server, primitive, conversation and `key` identify the step. The value is stored for `ttl` seconds.

    Raises the exceptions of `run`. A later attempt gets the same value or the same ToolError. It gets OutcomeUnknown if
    `run` raised another exception, was cancelled, or died with its process.
    """

    ledger, name = call.server.ledger, _name_of(call, flow, key)
    if not await ledger.claim(name, owner=call.principal.key, ttl=ttl):
        return _outcome(key, await _recorded(call, name))
    try:
        value = through_json(await run())
    except asyncio.CancelledError:
        ledger.give_up(name)
        raise
    except Exception as problem:
        await _record(call, name, {"error": str(problem)} if isinstance(problem, ToolError) else {})
        raise
    await _record(call, name, {"value": value})
    return value


async def _record(call: Call, name: str, outcome: dict[str, Any]) -> None:
    try:
        await call.server.ledger.record(name, outcome)
    except Exception:
        # The step took effect, and this call can continue with its value.
        logger.exception("Outcome of a durable step not stored; it counts as unknown")


async def _recorded(call: Call, name: str) -> dict[str, Any] | None:
    """Wait for the outcome of the first attempt; None if it stays unknown."""
    call.server.executor.rest()
    pause, most = LOOK_EVERY
    loop = asyncio.get_running_loop()
    until = loop.time() + WAIT
    while (outcome := await call.server.ledger.outcome(name)) is None and loop.time() < until:
        await asyncio.sleep(pause)
        pause = min(2 * pause, most)
    return outcome


def _outcome(key: str, outcome: dict[str, Any] | None) -> Any:
    if outcome is not None and "value" in outcome:
        return outcome["value"]
    if outcome is not None and "error" in outcome:
        raise ToolError(outcome["error"])
    begun = "was started before and has not finished" if outcome is None else "was started before and failed"
    raise OutcomeUnknown(f"The step {key!r} {begun}; it does not run again. Check whether it took effect")


def _name_of(call: Call, flow: str, key: str) -> str:
    params = call.params
    what = [
        call.server.alias,
        call.principal.key,
        call.method,
        params.get(NAMED.get(call.method, "name")),
        params.get("arguments"),
        {name: str(value) for name, value in call.kwargs.items()},
        flow,
        key,
    ]
    return hashlib.sha256(jsonrpc.dumps_sorted(what)).hexdigest()
