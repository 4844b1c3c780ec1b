"""Calls of a remote that wait for an answer while nobody here does.

A client of the stateless era is asked by the end of its call, and comes back with the answers. A remote of the
handshake era asks while its call goes on. So that call is parked here in between, under an id that the client carries
sealed: for a bounded time, in bounded numbers, and in this process alone.
"""

import asyncio
import contextvars
import secrets
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

from mcp_django.client.errors import CallError
from mcp_django.contrib.proxies.connections.questions import Asked
from mcp_django.server.context.context import Context

QUESTIONS = 64
"""Of one call of a remote."""
REFUSED = -32600


class Pending(NamedTuple):
    """A question of the remote's, and where its answer is waited for."""

    asked: Asked
    answer: "asyncio.Future[dict[str, Any]]"

    def refuse(self, why: str) -> None:
        """Tell the remote that there is no answer."""
        if not self.answer.done():
            self.answer.set_exception(CallError(REFUSED, why))
            self.answer.exception()  # looked at, also where the remote has gone meanwhile

    def give(self, answer: dict[str, Any]) -> None:
        """Tell the remote the answer."""
        if not self.answer.done():
            self.answer.set_result(answer)


class Held:
    """One call of a remote that may ask, with a session of its own."""

    def __init__(self, run: Callable[["Held"], Awaitable[Any]], owner: str) -> None:
        """`run` makes the call, and gives the session back at its end."""
        self.owner = owner
        self.listener: Context | None = None
        """The call of ours that hears of progress and logs."""
        self.questions: list[Pending] = []
        self._news = asyncio.Event()
        self._task = asyncio.get_running_loop().create_task(self._finish(run), context=contextvars.Context())

    async def _finish(self, run: Callable[["Held"], Awaitable[Any]]) -> Any:
        try:
            return await run(self)
        finally:
            self._news.set()
            for pending in self.questions:
                pending.answer.cancel()

    async def ask(self, asked: Asked) -> dict[str, Any]:
        """The answer to a question of the remote's. Raises CallError when it gets none."""
        if len(self.questions) >= QUESTIONS:
            raise CallError(REFUSED, "There were too many questions")
        pending = Pending(asked, asyncio.get_running_loop().create_future())
        self.questions.append(pending)
        self._news.set()
        return await pending.answer

    async def until(self, number: int) -> list[Pending] | None:
        """The questions from this number on, as soon as there is one; None when the call is over."""
        while len(self.questions) <= number:
            if self._task.done():
                return None
            self._news.clear()
            await self._news.wait()
        return None if self._task.done() else self.questions[number:]

    async def result(self) -> Any:
        """What came of the call, which is over. Raises what it raised."""
        return await self._task

    async def end(self) -> None:
        """Give the call up; the remote is told."""
        self._task.cancel()
        await asyncio.wait({self._task})
        if not self._task.cancelled():
            self._task.exception()

    @property
    def is_over(self) -> bool:
        return self._task.done()


class Desk:
    """The parked calls of one proxy on one event loop."""

    def __init__(self, most: int, seconds: float) -> None:
        self._most, self._seconds = most, seconds
        self._parked: dict[str, tuple[Held, asyncio.TimerHandle]] = {}
        self._ending: set[asyncio.Task[None]] = set()

    def __len__(self) -> int:
        return len(self._parked)

    def new_id(self) -> str:
        return secrets.token_urlsafe(16)

    def park(self, id: str, held: Held) -> None:
        """Keep a call until somebody takes it, or its time is over; another gives way where there are too many."""
        held.listener = None
        if len(self._parked) >= self._most:
            self.give_way()
        alarm = asyncio.get_running_loop().call_later(self._seconds, self._drop, id, context=contextvars.Context())
        self._parked[id] = held, alarm

    def take(self, id: str, owner: str) -> Held | None:
        """The call of this owner's under this id, which is parked no more; None when there is none."""
        held, alarm = self._parked.get(id, (None, None))
        if held is None or alarm is None or held.owner != owner:
            return None
        alarm.cancel()
        del self._parked[id]
        return held

    def give_way(self) -> None:
        """Give up one call, if there is any: of those of whoever has most, the one that is parked longest. So nobody
        costs others theirs by being asked often.
        """
        owners = Counter(held.owner for held, _ in self._parked.values())
        if owners:
            most = max(owners.values())
            self._drop(next(id for id, (held, _) in self._parked.items() if owners[held.owner] == most))

    async def close(self) -> None:
        """Give all up, and wait until that is done."""
        for id in list(self._parked):
            self._drop(id)
        if self._ending:
            await asyncio.wait(self._ending)

    def _drop(self, id: str) -> None:
        held, alarm = self._parked.pop(id)
        alarm.cancel()
        task = asyncio.get_running_loop().create_task(held.end(), context=contextvars.Context())
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)
