"""One session with a server, from its opening to its end, lived in one task.

The SDK's transports and sessions are made of task groups, so the task that enters them has to leave them. `live` is
that task's work; calls come from any task of the same loop.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AsyncExitStack
from typing import Any, cast

import anyio
import anyio.abc
import mcp_types as types
from mcp.client.session import ClientSession
from mcp.shared.dispatcher import CallOptions, OnNotify, OnNotifyIntercept, OnRequest, ProgressFnT
from mcp.shared.jsonrpc_dispatcher import JSONRPCDispatcher
from mcp.shared.transport_context import TransportContext

from mcp_django.client.errors import ClientError
from mcp_django.client.options import Openable, Options
from mcp_django.client.session.callbacks import Answerers
from mcp_django.client.session.handlers import Kind, Listeners, Mailbox, Topic, change_of
from mcp_django.client.session.negotiation import agree
from mcp_django.client.session.param_headers import Mirrors
from mcp_django.client.session.validation import MEMBERS, Pages
from mcp_django.protocol.revisions import REVISIONS, Era, Revision

logger = logging.getLogger("mcp_django.client")


class Connection:
    """One session. It can be used from `ready` on, and until `live` returns."""

    session: ClientSession
    revision: Revision

    def __init__(self, target: Openable, options: Options, answerers: Answerers, listeners: Listeners) -> None:
        self._target, self._options, self._answerers = target, options, answerers
        self._mailbox = Mailbox(listeners)
        self._end = asyncio.Event()
        self.over = asyncio.Event()
        """Set when everything of it is closed, by whoever runs `live`."""
        self.failure: ClientError | None = None
        """Why it ended, if not because somebody closed it."""
        self.on_end: Callable[[], None] | None = None
        self.mirrors = Mirrors()
        self.pages = Pages(options.name)

    async def live(self, ready: Callable[["Connection", anyio.abc.TaskGroup], Awaitable[None]]) -> None:
        """Connect, say that it is `ready`, and stay until the wire ends or `end` is called.

        Raises whatever the transport and the handshake raise, in groups or not.
        """
        async with AsyncExitStack() as stack:
            async with asyncio.timeout(self._options.startup_timeout):
                await self._start(stack)
            async with anyio.create_task_group() as group:
                group.start_soon(self._mailbox.deliver)
                await ready(self, group)
                await self._end.wait()
                group.cancel_scope.cancel()

    def end(self) -> None:
        """Have `live` return."""
        if not self._end.is_set():
            self._end.set()
            if self.on_end is not None:
                self.on_end()

    @property
    def ended(self) -> bool:
        """Has the wire ended, or is it about to be closed?"""
        return self._end.is_set()

    @property
    def stateless(self) -> bool:
        """Does the session speak a revision of the stateless era?"""
        return self.revision.era is Era.STATELESS

    async def request(
        self, method: str, params: Mapping[str, Any], *, on_progress: ProgressFnT | None = None
    ) -> dict[str, Any]:
        """Send one request, and return its result as it was on the wire.

        Raises:
            MCPError: The server answered with an error, or the connection was closed.
            ValueError: The result is not what the revision says.
        """
        request: Any = _Raw({"method": method, "params": {**params, "_meta": dict(params.get("_meta") or {})}})
        result = await self.session.send_request(request, cast("Any", _Raw), progress_callback=on_progress)
        answer = cast("dict[str, Any]", result)
        return self.mirrors.learn(answer) if method == "tools/list" and self.stateless else answer

    async def notify(self, notification: types.ClientNotification) -> None:
        """Send a notification."""
        await self.session.send_notification(notification)

    async def _start(self, stack: AsyncExitStack) -> None:
        read, write = await stack.enter_async_context(self._target.open())
        session = ClientSession(
            dispatcher=_Dispatcher(read, write, self, self._options.revision),
            client_info=self._options.client_info,
            sampling_callback=self._answerers.sample if self._answerers.sampling else None,
            sampling_capabilities=_sampling_capability(self._options),
            elicitation_callback=self._answerers.elicit if self._answerers.elicitation else None,
            list_roots_callback=self._answerers.list_roots if self._answerers.roots is not None else None,
            logging_callback=self._on_log,
            message_handler=self._on_message,
            extensions={name: dict(settings) for name, settings in (self._options.extensions or {}).items()} or None,
        )
        self.session = await stack.enter_async_context(session)
        await agree(session, self._options)
        self.revision = REVISIONS[str(session.protocol_version)]

    async def note(self, error: Exception) -> None:
        """Take in what the transport reports: the reason why the wire ends, or what it could not read."""
        if isinstance(error, ClientError):
            self.failure = error
        else:
            logger.debug("The transport of an MCP client reports a %s", type(error).__name__)

    async def _on_log(self, params: types.LoggingMessageNotificationParams) -> None:
        self._mailbox.put("log", params)

    async def _on_message(self, message: types.ServerNotification | Exception) -> None:
        if not isinstance(message, Exception) and (change := change_of(message)) is not None:
            self._mailbox.put(*change)

    def tell(self, topic: Topic, value: str) -> None:
        """Have handlers told that something may have changed."""
        self._mailbox.put(topic, value)

    def announces(self, kind: Kind) -> bool:
        """Does the server say when this list changes?"""
        offered = getattr(self.session.server_capabilities, kind, None)
        return bool(offered is not None and offered.list_changed)


class _Dispatcher(JSONRPCDispatcher[TransportContext]):
    """The SDK's, which also ends the connection with the wire, proposes the pinned revision, mirrors arguments and
    leaves out of lists what is none.
    """

    def __init__(self, read: Any, write: Any, connection: Connection, revision: Revision | None) -> None:
        super().__init__(read, write, on_stream_exception=connection.note)
        self._connection, self._revision = connection, revision

    async def run(
        self,
        on_request: OnRequest,
        on_notify: OnNotify,
        on_notify_intercept: OnNotifyIntercept | None = None,
        *,
        task_status: anyio.abc.TaskStatus[None] = anyio.TASK_STATUS_IGNORED,
    ) -> None:
        try:
            await super().run(on_request, on_notify, on_notify_intercept, task_status=task_status)
        finally:
            self._connection.end()

    async def send_raw_request(
        self, method: str, params: Mapping[str, Any] | None, opts: CallOptions | None = None, **routing: Any
    ) -> dict[str, Any]:
        if method == "initialize" and self._revision is not None:
            params = {**(params or {}), "protocolVersion": self._revision.version}
        elif method == "tools/call" and params is not None and (mirrored := self._connection.mirrors.headers(params)):
            opts = {**(opts or {}), "headers": {**(opts or {}).get("headers", {}), **mirrored}}
        result = await super().send_raw_request(method, params, opts, **routing)
        if types.PROTOCOL_VERSION_META_KEY in ((params or {}).get("_meta") or {}):
            result.setdefault("resultType", "complete")  # a server that does not say means that
        if method in MEMBERS:
            result = self._connection.pages.cleaned(method, self._connection.revision.version, result)
        return result


class _Raw(dict[str, Any]):
    """A request or a result that passes through the SDK's session as the JSON that it is on the wire."""

    name_param = None

    def model_dump(self, **_: Any) -> dict[str, Any]:
        return self

    @staticmethod
    def model_validate(raw: dict[str, Any], **_: Any) -> dict[str, Any]:
        return raw


def _sampling_capability(options: Options) -> types.SamplingCapability | None:
    return types.SamplingCapability(tools=types.SamplingToolsCapability()) if options.sampling_tools else None
