"""Forwarding of a client's request to a remote server, and of requests back.

Without requests to the client, one exchange over the shared connection is enough.

A remote server of the stateless era ends its call to send requests. The local call then ends as well, or sends the
requests and continues. The data for the remote server is kept in the sealed state of the local call, which the client
can neither read nor change.

A remote server of the handshake era sends requests while its call runs. It receives the responses, or its call is
suspended until the client returns with them.
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
"""Maximum requests in one round of a remote server of the stateless era."""
ROUNDS = 32
"""Maximum rounds of one call; a round may only require a retry."""
LOST = (
    "The call is lost: it waited for the answer in another process, or for too long, and its result is unknown. Call "
    "the tool again if repeating it is safe"
)
MESSAGE, LOGGER = 2000, 200
"""Maximum characters of a progress message, and of a logger name."""


class Request(NamedTuple):
    """Request to forward."""

    method: str
    params: Wire
    repeats: bool
    """True if a request with unknown outcome may be repeated."""


class Relay:
    """Forwarder of the requests of one proxy on one event loop."""

    def __init__(self, name: str, sessions: Sessions, desk: Desk, timeout: float | None) -> None:
        self._name, self._sessions, self._desk, self._timeout = name, sessions, desk, timeout

    async def once(self, client: Client, request: Request, ctx: Context | None) -> Wire:
        """Run one round that must not contain requests to the client."""
        progress = ctx.report_progress if ctx is not None and wants_progress(ctx) else None
        answer = await client.exchange(
            request.method, request.params, timeout=self._timeout, on_progress=progress and _cut(progress)
        )
        if _asks(answer):
            raise ToolError(f"The server {self._name!r} sent a request to the client that the client does not support")
        return answer

    async def talk(self, ctx: Context, request: Request, manner: "Manner") -> Wire:
        """Run as many rounds as necessary."""
        return await _Talk(self, ctx, request, manner).run()


class Manner(NamedTuple):
    """Options of a call that accepts requests or log messages."""

    owner: str
    """Key of the caller."""
    level: str | None
    """Lowest level of log messages for the caller; None for no log messages."""
    open: Callable[[], Awaitable[Session]]
    """Function that acquires a connected session for the call."""
    attempt: int = 0
    """Number of earlier attempts that ended with a missing authorization."""


class _Round:
    """Call to a server of the stateless era, which sends no requests while running."""

    def __init__(self, listener: Context) -> None:
        self.listener: Context | None = listener

    async def ask(self, asked: Asked) -> Wire:
        raise CallError(REFUSED, "Servers of this era send no requests while a call runs")


class _Talk:
    """Conversation of one call with a remote server."""

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
        raise ToolError(f"The server {self._relay._name!r} sent no result in {ROUNDS} rounds")

    async def _step(self, number: int, more: Wire) -> Wire:
        """Run a round, or return its recorded outcome from an earlier local round."""
        key = f"proxy{self._manner.attempt}:{number}"
        if number or may_go_on(self._ctx):
            step: Wire = await self._ctx.once(key, lambda: self._allowed(more))
            if "needs" in step:
                raise AuthorizationNeeded(alias=self._relay._name, url=step["needs"])
            return step
        step = await self._round(more)
        return step if "result" in step else await self._ctx.once(key, lambda: step)

    async def _allowed(self, more: Wire) -> Wire:
        """Run a round, and record a missing authorization as its outcome.

        The following local rounds then take the same path.
        """
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
        # A cancelled call may still send requests.
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
        """Collect the responses that the remote server receives in its next round."""
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
            raise ToolError(
                f"The server {self._relay._name!r} sent a request that cannot be forwarded: {problem}"
            ) from None
        answer: Wire = await put(self._ctx, question)
        return answer

    async def _go_on(self, id: str) -> Wire:
        """Continue a running remote call: new, suspended or lost."""
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
        """Forward a request to the client and send its response to the remote server."""
        asked = pending.asked
        try:
            question = question_of(asked, self._ctx.revision, f"{KINDS.get(asked.method, 'proxy')}-{number}")
        except Unaskable as problem:
            pending.refuse(f"The request cannot be forwarded to the client: {problem}")
            return
        if not supports(self._ctx, question.needs):
            pending.refuse("The client does not support this request")
            return
        try:
            pending.give(await put(self._ctx, question))
        except Refused:
            pending.refuse("The client refused the request")


def _asks(answer: Mapping[str, Any]) -> bool:
    return answer.get("resultType") == "input_required"


def _noted(answer: Wire) -> Wire:
    """Return the data of a round with requests that has to be recorded."""
    requests = answer.get("inputRequests")
    if requests is not None and (
        type(requests) is not dict
        or len(requests) > QUESTIONS
        or not all(type(one) is dict and type(one.get("method")) is str for one in requests.values())
    ):
        raise ToolError("Malformed input request from the server")
    return {"inputRequests": requests, "requestState": answer.get("requestState")}


def _cut(report: Callable[..., Awaitable[None]]) -> Callable[[float, float | None, str | None], Awaitable[None]]:
    async def progress(done: float, total: float | None, message: str | None) -> None:
        await report(done, total, message[:MESSAGE] if message is not None else None)

    return progress


def pass_log(running: Running, message: Any) -> Awaitable[None] | None:
    """Forward a log message of the remote server, in the form of the SDK."""
    if running.listener is None or message.level not in LEVELS:
        return None
    logger = message.logger
    return running.listener.log(message.level, message.data, logger=label(logger[:LOGGER]) if logger else None)
