"""Suspended calls: remote calls that wait for a response between two local rounds.

A client of the stateless era receives requests at the end of its call and returns with the responses. A remote server
of the handshake era sends requests while its call runs. So the remote call is kept in between, under an id in the
sealed state of the client. It is kept for a limited time, in limited number, and only in this process.
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
"""Maximum number of requests in one remote call."""
REFUSED = -32600


class Pending(NamedTuple):
    """A request of the remote server and the future of its response."""

    asked: Asked
    answer: "asyncio.Future[dict[str, Any]]"

    def refuse(self, why: str) -> None:
        """Send an error to the remote server instead of a response."""
        if not self.answer.done():
            self.answer.set_exception(CallError(REFUSED, why))
            self.answer.exception()  # mark as retrieved, in case the remote call has already ended

    def give(self, answer: dict[str, Any]) -> None:
        """Send the response to the remote server."""
        if not self.answer.done():
            self.answer.set_result(answer)


class Held:
    """Remote call that can send requests, in a session of its own."""

    def __init__(self, run: Callable[["Held"], Awaitable[Any]], owner: str) -> None:
        """Start the call; `run` makes it and releases the session at its end."""
        self.owner = owner
        self.listener: Context | None = None
        """Context of the local call that receives progress and log messages."""
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
        """Return the response to a request of the remote server. Raises CallError."""
        if len(self.questions) >= QUESTIONS:
            raise CallError(REFUSED, "Too many requests in one call")
        pending = Pending(asked, asyncio.get_running_loop().create_future())
        self.questions.append(pending)
        self._news.set()
        return await pending.answer

    async def until(self, number: int) -> list[Pending] | None:
        """Wait for requests from this index on; None if the call has finished."""
        while len(self.questions) <= number:
            if self._task.done():
                return None
            self._news.clear()
            await self._news.wait()
        return None if self._task.done() else self.questions[number:]

    async def result(self) -> Any:
        """Return the result of the finished call, or raise its exception."""
        return await self._task

    async def end(self) -> None:
        """Cancel the call, which notifies the remote server."""
        self._task.cancel()
        await asyncio.wait({self._task})
        if not self._task.cancelled():
            self._task.exception()

    @property
    def is_over(self) -> bool:
        return self._task.done()


class Desk:
    """Suspended calls of one proxy on one event loop."""

    def __init__(self, most: int, seconds: float) -> None:
        self._most, self._seconds = most, seconds
        self._parked: dict[str, tuple[Held, asyncio.TimerHandle]] = {}
        self._ending: set[asyncio.Task[None]] = set()

    def __len__(self) -> int:
        return len(self._parked)

    def new_id(self) -> str:
        return secrets.token_urlsafe(16)

    def park(self, id: str, held: Held) -> None:
        """Keep a call until it is taken or its time expires; evict another at the limit."""
        held.listener = None
        if len(self._parked) >= self._most:
            self.give_way()
        alarm = asyncio.get_running_loop().call_later(self._seconds, self._drop, id, context=contextvars.Context())
        self._parked[id] = held, alarm

    def take(self, id: str, owner: str) -> Held | None:
        """Remove and return the owner's suspended call with this id, else None."""
        held, alarm = self._parked.get(id, (None, None))
        if held is None or alarm is None or held.owner != owner:
            return None
        alarm.cancel()
        del self._parked[id]
        return held

    def give_way(self) -> None:
        """Evict the oldest call of the owner with the most calls.

        So a caller cannot displace calls of other callers by starting many.
        """
        owners = Counter(held.owner for held, _ in self._parked.values())
        if owners:
            most = max(owners.values())
            self._drop(next(id for id, (held, _) in self._parked.items() if owners[held.owner] == most))

    async def close(self) -> None:
        """Cancel all calls, and wait until they have ended."""
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
