"""The way of one message, from decoded body to encoded answer."""

import asyncio
from collections.abc import Coroutine
from typing import Any, NamedTuple, cast

from ..protocol import jsonrpc
from ..protocol.errors import InternalError, InvalidRequest, MCPError, ResourceNotFound
from ..protocol.revisions import Era
from .ask import INPUT_REQUIRED
from .call import Call, Connection
from .dispatcher import Body, dispatch, notice
from .eras.base import Era as EraStrategy
from .eras.handshake import OPENING, HandshakeEra
from .eras.stateless import StatelessEra
from .invoke import is_bug, report
from .listing import Encoded
from .middleware import chain
from .ports import Overloaded
from .results import tool_error
from .server import Server
from .streams import Outbox

CALLING = "tools/call"
BATCH = 50
"""How many messages one batch may hold."""


class Work(NamedTuple):
    """A request whose answer has to be worked for."""

    call: Call
    run: Coroutine[Any, Any, bytes]
    """The encoded answer. Raises MCPError or Overloaded, or is cancelled."""
    inner: Coroutine[Any, Any, Any]
    """What `run` runs; both have to be closed when nobody will."""
    may_stream: bool = True
    """False when the answer must come in one piece, because the transport has something to say beside it."""

    def close(self) -> None:
        """It will not be run."""
        self.run.close()
        self.inner.close()


class Receipt(NamedTuple):
    """A notification or an answer to a question: nothing is sent back."""

    run: Coroutine[Any, Any, None] | None = None


Outcome = bytes | Work | Receipt


class Pipeline:
    """The steps of one message, for one server.

    The transport has decoded the body (1, 2) and authenticated the caller; `select` has named the era. `handle` goes
    on.
    """

    def __init__(self, server: Server) -> None:
        self.server = server
        self.stateless: EraStrategy = StatelessEra(server)
        self.handshake: EraStrategy = HandshakeEra(server)
        self.eras: dict[Era, EraStrategy] = {Era.STATELESS: self.stateless, Era.HANDSHAKE: self.handshake}
        self._through = chain(server.middleware, self._innermost) if server.middleware else None

    def handle(self, era: EraStrategy, raw: Any, connection: Connection, outbox: Outbox) -> Outcome:
        """What becomes of a message. Raises MCPError, with the request's id in `request_id` when it was readable."""
        message = era.read(raw, connection)  # 3. the era's shapes
        if isinstance(message, list):
            return self._batch(era, message, connection, outbox)
        if not isinstance(message, jsonrpc.Request):
            return self._receive(era, message, connection, outbox)
        try:
            call = era.open(message, connection, outbox)  # 3. the call
            if self._through is not None or (self.server.has_lifespan and not self.server.lifespan.entered()):
                return self._work(call, self._prepared(call))
            body = dispatch(call)  # 5. the method; 6. providers and the user's function
        except MCPError as problem:
            problem.request_id = message.id
            raise
        except Exception as problem:
            error = InternalError(report(self.server, f"method {message.method[:128]!r}", problem))
            error.request_id = message.id
            raise error from None
        if isinstance(body, Coroutine):
            return self._work(call, body)
        return self._encode(call, body)  # 7. the era's dress; 8. is the transport's

    def _work(self, call: Call, body: Coroutine[Any, Any, Body]) -> Work:
        return Work(call, self._finish(call, body), body, call.method != OPENING)

    def refuse(self, era: EraStrategy, problem: MCPError, call: Call | None = None) -> bytes:
        """An error, encoded."""
        code = problem.code
        if call is not None and isinstance(problem, ResourceNotFound):
            code = call.revision.resource_not_found
        id = problem.request_id if call is None else call.id
        return jsonrpc.error(id, problem, code=code)

    async def _prepared(self, call: Call) -> Body:
        if self.server.has_lifespan:
            await self.server.lifespan.enter()
        return await self._innermost(call) if self._through is None else await self._through(call)  # 4. middleware

    async def _innermost(self, call: Call) -> dict[str, Any]:
        if call.id is None:
            await notice(call)
            return {}
        body = dispatch(call)
        if isinstance(body, Coroutine):
            body = await body
        return body.decoded() if isinstance(body, Encoded) else body

    async def _finish(self, call: Call, work: Coroutine[Any, Any, Body]) -> bytes:
        # One lane for whatever this call does with the ORM: middleware, dependencies, providers, the handler.
        lease = self.server.executor.enter()
        try:
            return self._encode(call, await work)
        except (MCPError, Overloaded):
            raise
        except BaseException as problem:
            if not is_bug(problem):
                raise
            text = report(self.server, f"method {call.method!r}", problem)
            if call.method == CALLING:
                # A tool's result that has no JSON form is a bug like any other of the tool.
                return self._encode(call, tool_error(text))
            raise InternalError(text) from None
        finally:
            lease.close()

    def _encode(self, call: Call, body: Body) -> bytes:
        id = cast(jsonrpc.Request, call.message).id
        if isinstance(body, Encoded):
            return jsonrpc.splice(id, body.raw)
        kind = body.get("resultType")
        if kind is None:
            return jsonrpc.result(id, call.era.dress(call, body))
        # By its content, because middleware may have copied it.
        return jsonrpc.result(id, call.era.suspend(call, body) if kind == INPUT_REQUIRED else body)

    def _receive(
        self, era: EraStrategy, message: jsonrpc.Notification | jsonrpc.Response, connection: Connection, outbox: Outbox
    ) -> Receipt:
        if isinstance(message, jsonrpc.Response):
            if connection.session is None:
                raise InvalidRequest("Nothing was asked here")
            connection.session.answer(message)
            return Receipt()
        if era.name is Era.STATELESS and self._through is None:
            return Receipt()
        return Receipt(self._noticed(era.open(message, connection, outbox)))

    async def _noticed(self, call: Call) -> None:
        lease = self.server.executor.enter()
        try:
            await (notice(call) if self._through is None else self._through(call))
        except MCPError:
            return  # there is nobody to tell
        except Exception as problem:
            report(self.server, f"notification {call.method!r}", problem)
        finally:
            lease.close()

    def _batch(self, era: EraStrategy, items: list[Any], connection: Connection, outbox: Outbox) -> Outcome:
        """Each element on its own, all at once; one that fails does not fail the others (JSON-RPC 2.0, batch)."""
        if len(items) > BATCH:
            raise InvalidRequest(f"A batch may hold {BATCH} messages at most")
        if any(map(_is_answer, items)) and not all(map(_is_answer, items)):
            raise InvalidRequest("A batch holds requests and notifications, or answers, but not both")
        replies: list[bytes] = []
        works: list[Work] = []
        receipts: list[Receipt] = []
        for item in items:
            try:
                if type(item) is dict and item.get("method") == OPENING:
                    raise InvalidRequest("initialize must not be part of a batch", request_id=_readable_id(item))
                outcome = self.handle(era, item, connection, outbox) if type(item) is not list else _nested()
                match outcome:
                    case Work():
                        works.append(outcome)
                    case Receipt():
                        receipts.append(outcome)
                    case bytes():
                        replies.append(outcome)
            except MCPError as problem:
                replies.append(self.refuse(era, problem))
        if not works and not receipts:
            return jsonrpc.batch(replies)
        if not works and not replies:
            return Receipt(_all(receipts))
        call = works[0].call if works else era.open(jsonrpc.Request(0, "ping", None), connection, outbox)
        joined = self._joined(era, replies, works, receipts)
        return Work(call, joined, joined)

    async def _joined(
        self, era: EraStrategy, replies: list[bytes], works: list[Work], receipts: list[Receipt]
    ) -> bytes:
        await _all(receipts)
        answers = await asyncio.gather(*(self._answered(era, work) for work in works))
        return jsonrpc.batch([*replies, *(answer for answer in answers if answer is not None)])

    async def _answered(self, era: EraStrategy, work: Work) -> bytes | None:
        """None when the client gave this one up."""
        session, id = work.call.session, work.call.id
        task = asyncio.ensure_future(work.run)
        if session is not None and id is not None:
            session.in_flight[id] = task
        try:
            await asyncio.wait([task])
            return None if task.cancelled() else task.result()
        except MCPError as problem:
            return self.refuse(era, problem, work.call)
        except Overloaded as problem:
            return self.refuse(era, InternalError(str(problem)), work.call)
        finally:
            task.cancel()
            if session is not None and id is not None:
                session.in_flight.pop(id, None)


def _is_answer(item: Any) -> bool:
    return type(item) is dict and "method" not in item and ("result" in item or "error" in item)


def _readable_id(item: dict[str, Any]) -> jsonrpc.Id | None:
    id = item.get("id")
    return id if type(id) is int or type(id) is str else None


def _nested() -> Outcome:
    raise InvalidRequest("A batch must not hold another")


async def _all(receipts: list[Receipt]) -> None:
    for receipt in receipts:
        if receipt.run is not None:
            await receipt.run
