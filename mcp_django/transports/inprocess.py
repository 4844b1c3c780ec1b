"""Calls to a server in the same process, for commands, scripts and tests.

A call passes through the pipeline like one of a client, but without HTTP. `InProcessCaller` uses the stateless era and
answers elicitations with a function.
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
    """Return the result of a request after its background jobs are done.

    `on_message` receives each message before the answer. Raises MCPError, Overloaded.
    """
    outbox = Outbox()
    # Encode and decode as over the wire, so that handlers get a copy with JSON values only.
    outcome = pipeline.handle(era, jsonrpc.loads(jsonrpc.dumps(message)), connection, outbox)
    if isinstance(outcome, Receipt):
        raise InternalError("A request was handled as a notification")
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
        outbox.cut()  # A call must not wait for a reader that failed.


class Caller:
    """Calls of one principal to one server.

    `elicit` gets the params of a form or URL elicitation and returns an ElicitResult. Without it the client declares no
    elicitation capability. `on_notification` receives each notification.
    """

    def __init__(
        self, server: Server, principal: Principal, *, ask: Ask | None = None, tell: Tell | None = None
    ) -> None:
        self._pipeline = Pipeline(server)
        self._principal, self._ask, self._tell = principal, ask, tell
        self._ids = itertools.count(1)
        self._running: tuple[asyncio.AbstractEventLoop, asyncio.Task[Any]] | None = None

    async def call_tool(self, name: str, arguments: dict[str, Any]) -> dict[str, Any]:
        """Return the CallToolResult after all input rounds. Raises MCPError, Overloaded."""
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
        """Return the result of one request. Raises MCPError, Overloaded."""
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
        assert self._ask is not None  # Without it the server sends no input request.
        # Run on the main thread of the caller, where Ctrl-C arrives.
        ask = sync_to_async(self._ask, thread_sensitive=True)
        return {key: await ask(asked["params"]) for key, asked in questions.items()}

    def cancel(self) -> None:
        """Cancel the running call. Thread-safe."""
        if self._running is not None:
            loop, task = self._running
            loop.call_soon_threadsafe(task.cancel)
