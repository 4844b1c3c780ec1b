"""One request of a client of ours, passed on to a remote, with all that is said and asked on the way.

Three ways. Where nobody can be asked anything, one round over the connection that all share. A remote of the stateless
era that asks ends its call; so does ours, or it asks and goes on: what the remote wants back is remembered in the
sealed state of our call, which the client can neither read nor change. A remote of the handshake era asks while its
call goes on: it is answered, or its call is parked until our client comes back with the answers.
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, NamedTuple

from mcp_django.client import Client
from mcp_django.client.errors import AuthorizationNeeded, CallError
from mcp_django.contrib.proxies.connections.questions import KINDS, Asked, Unaskable, question_of
from mcp_django.contrib.proxies.connections.sessions import Running, Session, Sessions
from mcp_django.contrib.proxies.forwarding.suspended_calls import REFUSED, Desk, Held, Pending
from mcp_django.protocol.errors import ToolError
from mcp_django.protocol.meta import LOG_LEVEL
from mcp_django.protocol.revisions import REVISIONS, Era
from mcp_django.protocol.types import LEVELS
from mcp_django.server.calls.log_sanitizer import label
from mcp_django.server.client_requests.conversation import Refused, Suspended
from mcp_django.server.context.context import Context
from mcp_django.server.context.forwarding import may_go_on, put, supports, wants_progress

Wire = dict[str, Any]
QUESTIONS = 64
"""Of one round of a remote of the stateless era."""
ROUNDS = 32
"""Of one call of it. A round may ask nothing and want only to be asked again."""
LOST = (
    "The call waited for the answer in another process, or has waited too long for it, and what came of it is not "
    "known. Call the tool again if that does no harm"
)
MESSAGE, LOGGER = 2000, 200
"""Characters of a text of progress, and of a logger's name."""


class Request(NamedTuple):
    """What the remote is asked to do."""

    method: str
    params: Wire
    repeats: bool
    """May it be begun anew where nobody knows what came of it?"""


class Relay:
    """The requests of one proxy's callers on one event loop."""

    def __init__(self, name: str, sessions: Sessions, desk: Desk, timeout: float | None) -> None:
        self._name, self._sessions, self._desk, self._timeout = name, sessions, desk, timeout

    async def once(self, client: Client, request: Request, ctx: Context | None) -> Wire:
        """One round, in which nobody is asked anything."""
        progress = ctx.report_progress if ctx is not None and wants_progress(ctx) else None
        answer = await client.exchange(
            request.method, request.params, timeout=self._timeout, on_progress=progress and _cut(progress)
        )
        if _asks(answer):
            raise ToolError(f"The server {self._name!r} asks something, which it was told that nobody answers")
        return answer

    async def talk(self, ctx: Context, request: Request, manner: "Manner") -> Wire:
        """As many rounds as it takes."""
        return await _Talk(self, ctx, request, manner).run()


class Manner(NamedTuple):
    """How a call goes that may be asked something, or hear the log."""

    owner: str
    """Whose call it is."""
    level: str | None
    """The least level of log messages that the caller wants and the remote knows; None for none."""
    open: Callable[[], Awaitable[Session]]
    """Takes a session for it, connected."""
    attempt: int = 0
    """How often it was begun before, because somebody had to allow it first."""


class _Round:
    """A call of a remote of the stateless era, which asks by its end and not while it runs."""

    def __init__(self, listener: Context) -> None:
        self.listener: Context | None = listener

    async def ask(self, asked: Asked) -> Wire:
        raise CallError(REFUSED, "This is no question for this era")


class _Talk:
    """One call's conversation with a remote."""

    def __init__(self, relay: Relay, ctx: Context, request: Request, manner: Manner) -> None:
        self._relay, self._ctx, self._request, self._manner = relay, ctx, request, manner
        self._held: Held | None = None
        self._parked = False

    async def run(self) -> Wire:
        try:
            return await self._rounds()
        except BaseException:
            if self._held is not None and not self._parked:
                await self._held.end()
            raise

    async def _rounds(self) -> Wire:
        more = Wire()
        for number in range(ROUNDS):
            step = await self._step(number, more)
            if "parked" in step:
                return await self._go_on(step["parked"])
            if "result" in step:
                result: Wire = step["result"]
                return result
            more = await self._answers(number, step["asks"])
        raise ToolError(f"The server {self._relay._name!r} gave no answer in {ROUNDS} rounds")

    async def _step(self, number: int, more: Wire) -> Wire:
        """One round, or what came of it when an earlier round of ours went through it."""
        key = f"proxy{self._manner.attempt}:{number}"
        if number or may_go_on(self._ctx):
            step: Wire = await self._ctx.once(key, lambda: self._allowed(more))
            if "needs" in step:
                raise AuthorizationNeeded(alias=self._relay._name, url=step["needs"])
            return step
        step = await self._round(more)
        return step if "result" in step else await self._ctx.once(key, lambda: step)

    async def _allowed(self, more: Wire) -> Wire:
        """As `_round`; that somebody has to allow it is remembered, so that the rounds to come go the same way."""
        try:
            return await self._round(more)
        except AuthorizationNeeded as problem:
            return {"needs": problem.url}

    async def _round(self, more: Wire) -> Wire:
        session = await self._manner.open()
        if REVISIONS[session.client.protocol_version or ""].era is Era.HANDSHAKE:
            held = self._held = self._hold(session, {})
            held.listener = self._ctx
            if await held.until(0) is None:
                return {"result": await held.result()}
            return {"parked": self._relay._desk.new_id()}
        answer = await self._use(session, _Round(self._ctx), more)
        return {"asks": _noted(answer)} if _asks(answer) else {"result": answer}

    def _hold(self, session: Session, more: Wire) -> Held:
        return Held(lambda held: self._use(session, held, more), self._manner.owner)

    async def _use(self, session: Session, running: Running, more: Wire) -> Wire:
        # What was given up may still ask.
        session.call, broken = running, True
        try:
            answer = await self._exchange(session, running, more)
            broken = False
            return answer
        except CallError:
            broken = False
            raise
        finally:
            self._relay._sessions.give_back(session, broken=broken)

    async def _exchange(self, session: Session, running: Running, more: Wire) -> Wire:
        client, request, level = session.client, self._request, self._manner.level
        meta: dict[str, Any] = {}
        if level is not None:
            if REVISIONS[client.protocol_version or ""].era is Era.STATELESS:
                meta[LOG_LEVEL] = level
            elif session.level != level:
                await client.set_logging_level(level)  # type: ignore[arg-type]  # one of LEVELS
                session.level = level

        async def progress(done: float, total: float | None, message: str | None) -> None:
            if running.listener is not None:
                await _cut(running.listener.report_progress)(done, total, message)

        return await client.exchange(
            request.method,
            {**request.params, **more},
            timeout=self._relay._timeout,
            on_progress=progress if wants_progress(self._ctx) else None,
            meta=meta or None,
        )

    async def _answers(self, number: int, asks: Wire) -> Wire:
        """What the remote is sent in its next round."""
        requests = asks.get("inputRequests") or {}
        answers = await self._ctx.gather(
            *(
                self._answer(Asked(asked["method"], asked.get("params")), f"{number}.{place}")
                for place, asked in enumerate(requests.values())
            )
        )
        more: Wire = {}
        if requests:
            more["inputResponses"] = dict(zip(requests, answers, strict=True))
        if asks.get("requestState") is not None:
            more["requestState"] = asks["requestState"]
        return more

    async def _answer(self, asked: Asked, key: str) -> Wire:
        try:
            question = question_of(asked, self._ctx.revision, f"{KINDS.get(asked.method, 'proxy')}-{key}")
        except Unaskable as problem:
            raise ToolError(f"The server {self._relay._name!r} asks what cannot be passed on: {problem}") from None
        answer: Wire = await put(self._ctx, question)
        return answer

    async def _go_on(self, id: str) -> Wire:
        """The call that asks while it goes on: begun just now, parked, or lost."""
        held = self._held or self._relay._desk.take(id, self._manner.owner)
        if held is None:
            if not self._request.repeats:
                raise ToolError(LOST)
            held = self._hold(await self._manner.open(), {})
        self._held, held.listener = held, self._ctx
        number = 0
        try:
            while (asked := await held.until(number)) is not None:
                await self._ctx.gather(*(self._pass_on(one, number + place) for place, one in enumerate(asked)))
                number += len(asked)
            result: Wire = await held.result()
            return result
        except Suspended:
            self._parked = True
            self._relay._desk.park(id, held)
            raise

    async def _pass_on(self, pending: Pending, number: int) -> None:
        """Ask our client what the remote asks, and tell the remote."""
        asked = pending.asked
        try:
            question = question_of(asked, self._ctx.revision, f"{KINDS.get(asked.method, 'proxy')}-{number}")
        except Unaskable as problem:
            pending.refuse(f"The client cannot be asked this: {problem}")
            return
        if not supports(self._ctx, question.needs):
            pending.refuse("The client cannot be asked this")
            return
        try:
            pending.give(await put(self._ctx, question))
        except Refused:
            pending.refuse("The client refused the question")


def _asks(answer: Mapping[str, Any]) -> bool:
    return answer.get("resultType") == "input_required"


def _noted(answer: Wire) -> Wire:
    """What has to be remembered of a round that ended with questions."""
    requests = answer.get("inputRequests")
    if requests is not None and (
        type(requests) is not dict
        or len(requests) > QUESTIONS
        or not all(type(one) is dict and type(one.get("method")) is str for one in requests.values())
    ):
        raise ToolError("The server asks in a way that is none")
    return {"inputRequests": requests, "requestState": answer.get("requestState")}


def _cut(report: Callable[..., Awaitable[None]]) -> Callable[[float, float | None, str | None], Awaitable[None]]:
    async def progress(done: float, total: float | None, message: str | None) -> None:
        await report(done, total, message[:MESSAGE] if message is not None else None)

    return progress


def pass_log(running: Running, message: Any) -> Awaitable[None] | None:
    """Tell the client of a call what the remote logs. `message` is the SDK's."""
    if running.listener is None or message.level not in LEVELS:
        return None
    logger = message.logger
    return running.listener.log(message.level, message.data, logger=label(logger[:LOGGER]) if logger else None)
