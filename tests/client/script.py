"""A server in memory whose answers a test writes, and a server of the SDK in memory."""

import inspect
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import anyio
import anyio.abc
import mcp_types as types
from mcp import MCPError
from mcp.client._memory import InMemoryTransport
from mcp.server.mcpserver import MCPServer
from mcp.shared.message import SessionMessage

from mcp_django.protocol.revisions import LATEST, LATEST_HANDSHAKE
from tests.support.waiting import WAIT_SECONDS

HANDSHAKE, STATELESS = LATEST_HANDSHAKE.version, LATEST.version
ERAS = ["handshake", "stateless"]
EVERYTHING: dict[str, Any] = {
    "tools": {"listChanged": True},
    "prompts": {"listChanged": True},
    "resources": {"listChanged": True, "subscribe": True},
    "logging": {},
}
INFO = {"name": "script", "version": "1"}


class Memory:
    """A server of the SDK as a target."""

    def __init__(self, server: MCPServer) -> None:
        self.server = server

    def open(self) -> AbstractAsyncContextManager[Any]:
        return InMemoryTransport(self.server)


class Script:
    """A server of one era.

    `answers` maps a method to its response: a result, an exception, or a function of the parameters that returns or
    raises one. A method without an entry is unknown.
    """

    def __init__(self, era: str = "handshake", capabilities: dict[str, Any] | None = None, **answers: Any) -> None:
        self.era, self.capabilities = era, EVERYTHING if capabilities is None else capabilities
        self.answers = {name.replace("_", "/"): answer for name, answer in answers.items()}
        self.received: list[tuple[str, dict[str, Any]]] = []
        self.opened, self.refusals = 0, list[BaseException]()
        self.cancelled: list[Any] = []
        self.streams: list[dict[str, Any]] = []
        """Open streams of changes: `id`, `filter`, and the event `over` that ends it."""
        self._news = anyio.Event()
        self._out: Any = None
        self._scope: anyio.CancelScope | None = None
        self._failure: BaseException | None = None
        self._asked: dict[str, anyio.Event] = {}
        self._answers: dict[str, Any] = {}

    @asynccontextmanager
    async def open(self) -> AsyncIterator[Any]:
        self.opened += 1
        if self.refusals:
            raise self.refusals.pop(0)
        there, client_write = anyio.create_memory_object_stream[Any](1000)[::-1]
        self._out, client_read = anyio.create_memory_object_stream[Any](1000)
        async with anyio.create_task_group() as group:
            group.start_soon(self._serve, there, group)
            try:
                yield client_read, client_write
            finally:
                group.cancel_scope.cancel()
                self._out.close()
                there.close()

    def methods(self) -> list[str]:
        """List the received methods, without those of the connection setup."""
        rest = {"server/discover", "initialize", "notifications/initialized"}
        return [method for method, _ in self.received if method not in rest]

    def hang_up(self) -> None:
        """End the wire, as a process does at its exit."""
        self._out.close()

    async def notify(self, method: str, params: dict[str, Any] | None = None) -> None:
        """Send a notification."""
        await self._send(types.JSONRPCNotification(jsonrpc="2.0", method=method, params=params or {}))

    async def request(self, method: str, params: dict[str, Any] | None = None) -> Any:
        """Send a request; return its result or its error."""
        id = f"ask-{len(self._asked)}"
        self._asked[id] = anyio.Event()
        await self._send(types.JSONRPCRequest(jsonrpc="2.0", id=id, method=method, params=params or {}))
        await self._asked[id].wait()
        return self._answers[id]

    async def _serve(self, there: Any, group: anyio.abc.TaskGroup) -> None:
        async for item in there:
            message = item.message
            if isinstance(message, types.JSONRPCRequest):
                self._note(message.method, message.params or {})
                group.start_soon(self._answer, message)
            elif isinstance(message, types.JSONRPCNotification):
                self._note(message.method, message.params or {})
                if message.method == "notifications/cancelled":
                    self.cancelled.append((message.params or {})["requestId"])
            else:
                self._answers[str(message.id)] = getattr(message, "result", None) or getattr(message, "error", None)
                self._asked[str(message.id)].set()

    def _note(self, method: str, params: dict[str, Any]) -> None:
        self.received.append((method, params))
        self.wake()

    def wake(self) -> None:
        """Wake the tasks that wait for a condition."""
        self._news.set()
        self._news = anyio.Event()

    async def until(self, condition: Callable[[], Any]) -> None:
        """Wait until the received messages satisfy the condition."""
        with anyio.fail_after(WAIT_SECONDS):
            while not condition():
                await self._news.wait()

    async def _answer(self, request: types.JSONRPCRequest) -> None:
        try:
            result = await self._result(request.method, request.params or {}, request.id)
        except MCPError as error:
            await self._send(types.JSONRPCError(jsonrpc="2.0", id=request.id, error=error.error))
        else:
            if result is not None:
                await self._send(types.JSONRPCResponse(jsonrpc="2.0", id=request.id, result=result))

    async def _result(self, method: str, params: dict[str, Any], id: Any) -> Any:
        answer = self.answers.get(method)
        if answer is None:
            return self._greeting(method, params)
        if callable(answer):
            answer = answer(params, id) if len(inspect.signature(answer).parameters) == 2 else answer(params)
        if inspect.isawaitable(answer):
            answer = await answer
        if isinstance(answer, Exception):
            raise answer
        if self.era == "stateless" and isinstance(answer, dict):
            # Fields that the era requires of results, unless the test sets others.
            cached = {"ttlMs": 0, "cacheScope": "private"} if method.endswith(("list", "read")) else {}
            return {"resultType": "complete", **cached, **answer}
        return answer

    def _greeting(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        if method == "initialize" and self.era == "handshake":
            return {"protocolVersion": params["protocolVersion"], "capabilities": self.capabilities, "serverInfo": INFO}
        if method == "server/discover" and self.era == "stateless":
            return {
                "supportedVersions": [STATELESS],
                "capabilities": self.capabilities,
                "resultType": "complete",
                "ttlMs": 0,
                "cacheScope": "private",
                "_meta": {types.SERVER_INFO_META_KEY: INFO},
            }
        if method in ("ping", "logging/setLevel", "resources/subscribe", "resources/unsubscribe"):
            return {}
        raise MCPError(types.METHOD_NOT_FOUND, f"Method not found: {method}")

    async def _send(self, message: Any) -> None:
        await self._out.send(SessionMessage(message))
