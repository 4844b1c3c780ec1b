"""Client of a server in the same process, for the admin, commands and tests.

Its messages pass through the whole pipeline like those of any client, but without a transport.
"""

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

from mcp_django.protocol import jsonrpc
from mcp_django.protocol.errors import InternalError, MissingClientCapability
from mcp_django.protocol.headers import PROTOCOL_VERSION, Headers
from mcp_django.protocol.revisions import LATEST
from mcp_django.server.calls.call import CURRENT_CALL, Call, Connection, EraStrategy, reset_current_call
from mcp_django.server.calls.message_queue import Outbox
from mcp_django.server.calls.session import ServerSession
from mcp_django.server.context.notifications import LOG_MESSAGE_METHOD
from mcp_django.server.pipeline import Pipeline
from mcp_django.server.ports import Principal
from mcp_django.server.server import Server
from mcp_django.transports.inprocess.exchange import complete_rounds, iter_entries, send_message, send_request
from mcp_django.transports.inprocess.profile import InProcessProfile, JSONObject
from mcp_django.transports.inprocess.tasks import TASK_RESULT, TASKS_EXTENSION, InProcessTask

NotificationCallback = Callable[[str, JSONObject], None]
Respond = Callable[[JSONObject], Awaitable[Any]]
T = TypeVar("T")


class InProcessClient:
    """Client of one principal and one server.

    `respond` receives each request of the server, an object with `method` and `params`, and returns the result of the
    client. The capabilities of the profile declare which requests it answers. `on_notification` receives the method and
    the params of each notification. `headers` and `url_kwargs` are those of an HTTP request to the endpoint.

    Methods that send raise MCPError, Overloaded, and the exceptions of both functions.
    """

    def __init__(
        self,
        server: Server,
        principal: Principal,
        profile: InProcessProfile | None = None,
        *,
        respond: Respond | None = None,
        on_notification: NotificationCallback | None = None,
        headers: Mapping[str, str] | None = None,
        url_kwargs: Mapping[str, Any] | None = None,
    ) -> None:
        self.server = server
        self.principal = principal
        self.profile = profile or InProcessProfile()
        self.session: ServerSession | None = None
        """Session of the server; None before `initialize` and in the stateless era."""
        self._respond = respond
        self._on_notification = on_notification
        self._headers = dict(headers or {})
        self._url_kwargs = url_kwargs
        self._pipeline = Pipeline(server)
        self._ids = itertools.count(1)
        self._response_error: BaseException | None = None
        self._running: tuple[asyncio.AbstractEventLoop, asyncio.Task[Any]] | None = None

    async def initialize(self) -> JSONObject:
        """Open the session and return the InitializeResult.

        In the stateless era, return the result of `server/discover`.
        """
        if not self.profile.has_handshake:
            return await self.request("server/discover")
        connection = self._create_connection()
        result = await self._exchange(self.profile.build_initialize(next(self._ids)), connection)
        self.session = connection.opened_session
        await self.notify("notifications/initialized")
        return result

    async def close(self) -> None:
        """End the session, as a client that disconnects does."""
        session = self.session
        self.session = None
        if session is not None:
            await self.server.ports.sessions.end(session, "client")

    async def request(self, method: str, params: Mapping[str, Any] | None = None) -> JSONObject:
        """Return the result of one request, which may require a further round.

        A revision with a handshake opens a session first, unless the server works without one.
        """
        if self.profile.has_handshake and self.session is None and self.server.options.require_session:
            await self.initialize()
        id = next(self._ids)
        token = None if self._on_notification is None else id
        message = self.profile.build_request(id, method, params or {}, progressToken=token)
        return await self._exchange(message, self._create_connection())

    async def complete(self, method: str, params: Mapping[str, Any] | None = None) -> JSONObject:
        """Return the result of a request after all rounds of input requests."""
        return await complete_rounds(partial(self.request, method), params or {}, self._respond_to_server)

    async def call_tool(self, name: str, arguments: Mapping[str, Any]) -> JSONObject:
        """Return the CallToolResult after all rounds.

        A tool that runs as a task only is called as a task, and this method waits for its end.
        """
        task = asyncio.current_task()
        if task is not None:
            self._running = asyncio.get_running_loop(), task
        params = {"name": name, "arguments": dict(arguments)}
        extensions = self.profile.capabilities.get("extensions", {})
        try:
            return await self._complete_task(params)
        except MissingClientCapability as problem:
            if TASKS_EXTENSION in extensions or problem.required != {"extensions": {TASKS_EXTENSION: {}}}:
                raise
        capabilities = {**self.profile.capabilities, "extensions": {**extensions, TASKS_EXTENSION: {}}}
        self.profile = replace(self.profile, capabilities=capabilities)
        return await self._complete_task(params)

    async def _complete_task(self, params: JSONObject) -> JSONObject:
        result = await self.complete("tools/call", params)
        if result.get("resultType") != TASK_RESULT:
            return result
        return await InProcessTask(result["taskId"], self.request, self._respond_to_server, self._report_message).wait()

    def _report_message(self, message: str) -> None:
        """Pass the status message of a task to the callback, as a log message."""
        if self._on_notification is not None:
            self._on_notification(LOG_MESSAGE_METHOD, {"level": "info", "data": message})

    def cancel(self) -> None:
        """Cancel the running call of a tool. Thread-safe."""
        if self._running is not None:
            loop, task = self._running
            loop.call_soon_threadsafe(task.cancel)

    async def list_all(self, method: str, member: str) -> list[JSONObject]:
        """Return the entries of all pages of a list; `member` is their name in results."""
        return [entry async for entry in iter_entries(self.complete, method, member)]

    async def notify(self, method: str, params: Mapping[str, Any] | None = None) -> None:
        """Send a notification and wait until the server has processed it."""
        params = self.profile.build_params(params or {})
        await self.send_message({"jsonrpc": "2.0", "method": method, "params": params})

    async def send_message(self, message: Mapping[str, Any]) -> None:
        """Send a notification or a response as it is, and wait until the server has processed it."""
        await send_message(self._pipeline, self._era, message, self._create_connection())

    async def run_in_call(self, method: str, run: Callable[[Call], Awaitable[T]]) -> T:
        """Return the result of `run` with a call of `method`, in the state in which its handler would run."""
        message = jsonrpc.Request(next(self._ids), method, self.profile.build_params({}))
        call = self._era.create_call(message, self._create_connection(), Outbox())
        token = CURRENT_CALL.set(call)
        lease = self.server.ports.executor.acquire_lease()
        try:
            if self.server.has_lifespan:
                await self.server.lifespan.enter()
            return await run(call)
        finally:
            lease.close()
            reset_current_call(token)

    @property
    def _era(self) -> EraStrategy:
        era: EraStrategy = self._pipeline.eras[(self.profile.revision or LATEST).era]
        return era

    def _create_connection(self) -> Connection:
        connection = Connection(self.principal, session=self.session, url_kwargs=self._url_kwargs)
        headers = dict(self._headers)
        if self.profile.has_handshake and not self.server.options.require_session:
            headers[PROTOCOL_VERSION.decode()] = self.profile.version
        pairs = [(name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in headers.items()]
        connection.headers = Headers(pairs) if pairs else None
        if PROTOCOL_VERSION.decode() in headers:
            connection.message_headers = connection.headers
        return connection

    async def _exchange(self, message: JSONObject, connection: Connection) -> JSONObject:
        self._response_error = None
        result = await send_request(self._pipeline, self._era, message, connection, self._on_message)
        if self._response_error is not None:
            raise self._response_error
        return result

    async def _on_message(self, message: JSONObject) -> None:
        """Pass on a notification, or answer a request of the server."""
        if "id" not in message:
            if self._on_notification is not None:
                self._on_notification(message["method"], message.get("params", {}))
        elif self.session is not None:
            try:
                response = jsonrpc.Response(message["id"], await self._respond_to_server(message), None)
            except Exception as failure:
                # Answer the handler in any case, so that it does not wait forever.
                self._response_error = failure
                error = {"code": InternalError.code, "message": "The client failed to answer"}
                response = jsonrpc.Response(message["id"], None, error)
            self.session.receive_response(response)

    async def _respond_to_server(self, request: JSONObject) -> Any:
        assert self._respond is not None  # Without capabilities the server sends no request.
        return await self._respond(request)
