"""`ctx.once`: what a call does a single time, however often its handler runs.

Plain, it is a note in the conversation: the rounds that follow do not repeat it, but a round that is sent again does.
Durable, a row is claimed before anything runs, so that it starts at most once whatever the client or the network does
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
"""Seconds that a second attempt waits for the first, which may still be running."""
LOOK_EVERY = 0.05, 0.5
"""Seconds between two looks: the first, and the most it grows to."""

ONCE_IN_TRANSACTION = (
    "What once(durable=True) did could be rolled back with the transaction around it, and would not be done again. "
    "Declare the handler with atomic=False, and put a transaction.atomic() into the function that runs once"
)


class OutcomeUnknown(ToolError):
    """It was begun before, and nobody can say what came of it; so it is not done again."""


class OnceKeys:
    """The `once` keys of one run: a key used twice is a mistake, never a silent skip."""

    def __init__(self) -> None:
        self._seen: set[str] = set()

    def claim(self, key: str) -> None:
        if key in self._seen:
            raise ValueError(
                f"once({key!r}) ran before in this call; make the key unique, for example with the loop variable"
            )
        self._seen.add(key)


def through_json(value: Any) -> Any:
    """The same loss of types in both eras."""
    return jsonrpc.loads(jsonrpc.dumps(value))


async def at_most_once(call: Call, flow: str, key: str, run: Run, *, ttl: float) -> Any:
    """The JSON value of `run`, which begins at most once for this caller, server, primitive, `flow` and `key`, in
    whatever process; remembered for `ttl` seconds.

    Raises what `run` raises. A later attempt gets the same value, or the same ToolError, or OutcomeUnknown when `run`
    failed otherwise, was cancelled, or went down with its process.
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
        # What was done is done, and this call can go on with it.
        logger.exception("The outcome of once(durable=True) could not be written; it will count as unknown")


async def _recorded(call: Call, name: str) -> dict[str, Any] | None:
    """What the first attempt came to; None while that is not known."""
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
    begun = "was begun before and has not ended" if outcome is None else "was begun before and did not end well"
    raise OutcomeUnknown(f"The step {key!r} {begun}; it is not done again. Find out whether it took effect")


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
