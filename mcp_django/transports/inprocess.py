"""Calls to a server from the same process: for commands, scripts and tests that have no client.

A call goes through the pipeline like a client's, but without HTTP; a `Caller` calls in the stateless era, and a
function answers the questions.
"""

import asyncio
import contextlib
import itertools
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from asgiref.sync import sync_to_async

from mcp_django.protocol import jsonrpc
from mcp_django.protocol.errors import InternalError
from mcp_django.protocol.meta import CLIENT_CAPABILITIES, CLIENT_INFO, LOG_LEVEL, PROTOCOL_VERSION
from mcp_django.protocol.revisions import LATEST
from mcp_django.server.calls.call import Connection
from mcp_django.server.calls.message_queue import Outbox
from mcp_django.server.calls.pending import Receipt
from mcp_django.server.context.background import run_jobs
from mcp_django.server.eras.base import Era
from mcp_django.server.pipeline import Pipeline
from mcp_django.server.ports import Overloaded, Principal
from mcp_django.server.server import Server

Ask = Callable[[dict[str, Any]], dict[str, Any]]
Tell = Callable[[str, dict[str, Any]], None]
Hear = Callable[[dict[str, Any]], Awaitable[None]]
POLL = 60.0


async def exchange(
    pipeline: Pipeline, era: Era, message: dict[str, Any], connection: Connection, hear: Hear
) -> dict[str, Any]:
    """The result of one request, when it and what it leaves for after its answer are done. `hear` is given each message
    that comes before the answer. Raises MCPError, Overloaded.
    """
    outbox = Outbox()
    # As over the wire: what has no JSON form, and what is changed while the call runs, is none of the handler's.
    outcome = pipeline.handle(era, jsonrpc.loads(jsonrpc.dumps(message)), connection, outbox)
    if isinstance(outcome, Receipt):
        raise InternalError("A request was taken for a notification")
    body = outcome if isinstance(outcome, bytes) else await _run(outcome.run, outbox, hear)
    if not isinstance(outcome, bytes):
        await run_jobs(outcome.calls)
    result: dict[str, Any] = jsonrpc.loads(body)["result"]
    return result


async def _run(work: Coroutine[Any, Any, bytes], outbox: Outbox, hear: Hear) -> bytes:
    outbox.loop = asyncio.get_running_loop()
    reader = asyncio.ensure_future(_listen(outbox, hear))
    try:
        return await work
    finally:
        outbox.finish()
        with contextlib.suppress(Overloaded):
            await reader


async def _listen(outbox: Outbox, hear: Hear) -> None:
    try:
        while (messages := await outbox.read(POLL)) is not None:
            for message in messages:
                await hear(jsonrpc.loads(message))
    finally:
        outbox.cut()  # a call must not wait for a reader that failed


class Caller:
    """One principal's calls to one server.

    `ask` answers a form or URL elicitation, given its params, with an ElicitResult; without it the tool is told that
    the client cannot ask. `tell` is given each notification.
    """

    def __init__(
        self, server: Server, principal: Principal, *, ask: Ask | None = None, tell: Tell | None = None
    ) -> None:
        self._pipeline = Pipeline(server)
        self._principal, self._ask, self._tell = principal, ask, tell
        self._ids = itertools.count(1)
        self._running: tuple[asyncio.AbstractEventLoop, asyncio.Task[Any]] | None = None

    async def call_tool(self, name: str, arguments: dict[str, Any]) -> dict[str, Any]:
        """The CallToolResult, after as many rounds of questions as it takes. Raises MCPError, Overloaded."""
        params: dict[str, Any] = {"name": name, "arguments": arguments}
        task = asyncio.current_task()
        if task is not None:
            self._running = asyncio.get_running_loop(), task
        while True:
            result = await self.request("tools/call", params)
            if result.get("resultType") != "input_required":
                return result
            params = {"name": name, "arguments": arguments}
            if "inputRequests" in result:
                params["inputResponses"] = await self._answers(result["inputRequests"])
            if "requestState" in result:
                params["requestState"] = result["requestState"]

    async def request(self, method: str, params: dict[str, Any] | None = None) -> dict[str, Any]:
        """The result of one request. Raises MCPError, Overloaded."""
        meta: dict[str, Any] = {
            PROTOCOL_VERSION: LATEST.version,
            CLIENT_CAPABILITIES: {"elicitation": {"form": {}, "url": {}}} if self._ask else {},
            CLIENT_INFO: {"name": "mcp_django", "version": "1"},
            LOG_LEVEL: "info",
        }
        id = next(self._ids)
        if self._tell is not None:
            meta["progressToken"] = id
        message = {"jsonrpc": "2.0", "id": id, "method": method, "params": {**(params or {}), "_meta": meta}}
        connection = Connection(self._principal)
        return await exchange(self._pipeline, self._pipeline.stateless, message, connection, self._hear)

    async def _hear(self, said: dict[str, Any]) -> None:
        if self._tell is not None:
            self._tell(said["method"], said.get("params", {}))

    async def _answers(self, questions: dict[str, Any]) -> dict[str, Any]:
        assert self._ask is not None  # without it the server asks nothing
        # On the caller's own thread, where a terminal's Ctrl-C arrives.
        ask = sync_to_async(self._ask, thread_sensitive=True)
        return {key: await ask(asked["params"]) for key, asked in questions.items()}

    def cancel(self) -> None:
        """Give up the call that is running. From another thread than its own."""
        if self._running is not None:
            loop, task = self._running
            loop.call_soon_threadsafe(task.cancel)
