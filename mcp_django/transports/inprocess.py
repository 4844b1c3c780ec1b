"""Calls to a server in the same process, for commands, scripts and tests.

A call passes through the pipeline like one of a client, but without HTTP. `InProcessCaller` uses the stateless era and
answers elicitations with a function.
"""

import asyncio
import contextlib
import itertools
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from functools import partial
from typing import Any, TypeVar

from asgiref.sync import sync_to_async

from mcp_django.protocol import jsonrpc
from mcp_django.protocol.errors import InternalError, MissingClientCapability
from mcp_django.protocol.meta import CLIENT_CAPABILITIES, CLIENT_INFO, LOG_LEVEL, PROTOCOL_VERSION
from mcp_django.protocol.revisions import LATEST
from mcp_django.server.calls.background import run_background_jobs
from mcp_django.server.calls.call import CURRENT_CALL, Call, Connection, EraStrategy, reset_current_call
from mcp_django.server.calls.message_queue import Outbox
from mcp_django.server.calls.pending import Acknowledgement
from mcp_django.server.context.conversation import INPUT_REQUIRED
from mcp_django.server.context.notifications import LOG_MESSAGE_METHOD
from mcp_django.server.pipeline import Pipeline
from mcp_django.server.ports import Overloaded, Principal
from mcp_django.server.server import Server
from mcp_django.transports.inprocess_tasks import TASK_RESULT, TASKS_EXTENSION, InProcessTask

ElicitFunction = Callable[[dict[str, Any]], dict[str, Any]]
NotificationCallback = Callable[[str, dict[str, Any]], None]
MessageCallback = Callable[[dict[str, Any]], Awaitable[None]]
T = TypeVar("T")
READ_TIMEOUT_SECONDS = 60.0


async def send_request(
    pipeline: Pipeline, era: EraStrategy, message: dict[str, Any], connection: Connection, on_message: MessageCallback
) -> dict[str, Any]:
    """Return the result of a request after its background jobs are done.

    `on_message` receives each message before the answer. Raises MCPError, Overloaded.
    """
    outbox = Outbox()
    # Encode and decode as over the wire, so that handlers get a copy with JSON values only.
    outcome = pipeline.handle(era, jsonrpc.loads(jsonrpc.dumps(message)), connection, outbox)
    if isinstance(outcome, Acknowledgement):
        raise InternalError("A request was handled as a notification")
    body = outcome if isinstance(outcome, bytes) else await _run_and_forward(outcome.run, outbox, on_message)
    if not isinstance(outcome, bytes):
        await run_background_jobs(outcome.calls)
    result: dict[str, Any] = jsonrpc.loads(body)["result"]
    return result


async def _run_and_forward(coroutine: Coroutine[Any, Any, bytes], outbox: Outbox, on_message: MessageCallback) -> bytes:
    outbox.loop = asyncio.get_running_loop()
    reader = asyncio.ensure_future(_forward_messages(outbox, on_message))
    try:
        return await coroutine
    finally:
        outbox.finish()
        with contextlib.suppress(Overloaded):
            await reader


async def _forward_messages(outbox: Outbox, on_message: MessageCallback) -> None:
    try:
        while (messages := await outbox.read(READ_TIMEOUT_SECONDS)) is not None:
            for message in messages:
                await on_message(jsonrpc.loads(message))
    finally:
        outbox.abort()  # A call must not wait for a reader that failed.


async def complete_rounds(
    send: Callable[[dict[str, Any]], Awaitable[dict[str, Any]]],
    params: Mapping[str, Any],
    respond: Callable[[dict[str, Any]], Awaitable[Any]],
) -> dict[str, Any]:
    """Return the result of a request after all rounds of input requests.

    `send` sends the request with the params of a round, and `respond` returns the response to an input request.
    """
    round_params = dict(params)
    while True:
        result = await send(round_params)
        if result.get("resultType") != INPUT_REQUIRED:
            return result

        round_params = dict(params)
        input_requests = result.get("inputRequests", {})
        if input_requests:
            round_params["inputResponses"] = {key: await respond(request) for key, request in input_requests.items()}
        if "requestState" in result:
            round_params["requestState"] = result["requestState"]


class InProcessCaller:
    """Calls of one principal to one server.

    `elicit` gets the params of a form or URL elicitation and returns an ElicitResult. Without it the client declares no
    elicitation capability. `on_notification` receives each notification. `extensions` are declared in addition.
    """

    def __init__(
        self,
        server: Server,
        principal: Principal,
        *,
        elicit: ElicitFunction | None = None,
        on_notification: NotificationCallback | None = None,
        extensions: Mapping[str, Any] | None = None,
    ) -> None:
        self._pipeline = Pipeline(server)
        self._principal = principal
        self._elicit = elicit
        self._on_notification = on_notification
        self._ids = itertools.count(1)
        self._extensions: dict[str, Any] = dict(extensions or {})
        self._running: tuple[asyncio.AbstractEventLoop, asyncio.Task[Any]] | None = None

    async def call_tool(self, name: str, arguments: dict[str, Any]) -> dict[str, Any]:
        """Return the CallToolResult after all input rounds. Raises MCPError, Overloaded.

        A tool that runs as a task only is called as a task, and this method waits for its end.
        """
        task = asyncio.current_task()
        if task is not None:
            self._running = asyncio.get_running_loop(), task
        params = {"name": name, "arguments": arguments}
        try:
            return await self._complete_call(params)
        except MissingClientCapability as problem:
            if TASKS_EXTENSION in self._extensions or problem.required != {"extensions": {TASKS_EXTENSION: {}}}:
                raise
        self._extensions[TASKS_EXTENSION] = {}
        return await self._complete_call(params)

    async def _complete_call(self, params: dict[str, Any]) -> dict[str, Any]:
        result = await complete_rounds(partial(self.request, "tools/call"), params, self._respond_to_server)
        if result.get("resultType") != TASK_RESULT:
            return result
        return await InProcessTask(result["taskId"], self.request, self._respond_to_server, self._report_message).wait()

    def _report_message(self, message: str) -> None:
        """Pass the status message of a task to the callback, as a log message."""
        if self._on_notification is not None:
            self._on_notification(LOG_MESSAGE_METHOD, {"level": "info", "data": message})

    async def run_in_call(self, method: str, run: Callable[[Call], Awaitable[T]]) -> T:
        """Return the result of `run` with a call of `method`, in the state in which its handler would run."""
        server = self._pipeline.server
        message = jsonrpc.Request(next(self._ids), method, {"_meta": self._build_meta()})
        call = self._pipeline.stateless.create_call(message, Connection(self._principal), Outbox())
        token = CURRENT_CALL.set(call)
        lease = server.executor.acquire_lease()
        try:
            if server.has_lifespan:
                await server.lifespan.enter()
            return await run(call)
        finally:
            lease.close()
            reset_current_call(token)

    async def request(self, method: str, params: dict[str, Any] | None = None) -> dict[str, Any]:
        """Return the result of one request. Raises MCPError, Overloaded."""
        meta = self._build_meta()
        id = next(self._ids)
        if self._on_notification is not None:
            meta["progressToken"] = id
        message = {"jsonrpc": "2.0", "id": id, "method": method, "params": {**(params or {}), "_meta": meta}}
        connection = Connection(self._principal)
        return await send_request(self._pipeline, self._pipeline.stateless, message, connection, self._on_message)

    def _build_meta(self) -> dict[str, Any]:
        return {
            PROTOCOL_VERSION: LATEST.version,
            CLIENT_CAPABILITIES: {
                **({"elicitation": {"form": {}, "url": {}}} if self._elicit else {}),
                **({"extensions": self._extensions} if self._extensions else {}),
            },
            CLIENT_INFO: {"name": "mcp_django", "version": "1"},
            LOG_LEVEL: "info",
        }

    async def _on_message(self, message: dict[str, Any]) -> None:
        if self._on_notification is not None:
            self._on_notification(message["method"], message.get("params", {}))

    async def _respond_to_server(self, input_request: dict[str, Any]) -> Any:
        assert self._elicit is not None  # Without it the server sends no input request.
        # Run on the main thread of the caller, where Ctrl-C arrives.
        return await sync_to_async(self._elicit, thread_sensitive=True)(input_request["params"])

    def cancel(self) -> None:
        """Cancel the running call. Thread-safe."""
        if self._running is not None:
            loop, task = self._running
            loop.call_soon_threadsafe(task.cancel)
