"""Session with a server, run by one task from opening to closing.

The SDK's transports and sessions use task groups, which must be entered and exited by the same task. `run` is the work
of that task. Other tasks of the same loop may send requests.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import Any, cast

import anyio
import anyio.abc
import mcp_types as types
from mcp.client.session import ClientSession
from mcp.shared.dispatcher import CallOptions, OnNotify, OnNotifyIntercept, OnRequest, ProgressFnT
from mcp.shared.jsonrpc_dispatcher import JSONRPCDispatcher
from mcp.shared.transport_context import TransportContext

from mcp_django.client.errors import ClientError
from mcp_django.client.options import TASKS_EXTENSION, ClientOptions, ClientTarget
from mcp_django.client.session.adapters import ADAPTERS, DEFAULT_ADAPTER
from mcp_django.client.session.callbacks import ServerRequestCallbacks
from mcp_django.client.session.handlers import ListName, NotificationHandlers, NotificationQueue, Topic, get_change
from mcp_django.client.session.negotiation import negotiate
from mcp_django.client.session.param_headers import ParamHeaders
from mcp_django.client.session.validation import PageValidator
from mcp_django.protocol.log_text import get_logger
from mcp_django.protocol.revisions import REVISIONS, Era, Revision

logger = get_logger("mcp_django.client")


@dataclass(eq=False, repr=False)
class ClientConnection:
    """A session with a server, usable from `on_ready` until `run` returns."""

    _target: ClientTarget
    _options: ClientOptions
    _callbacks: ServerRequestCallbacks
    _handlers: NotificationHandlers
    on_close: Callable[[], None] | None = None
    failure: ClientError | None = None
    """The reason for the end; None if the client closed the session."""
    finished: asyncio.Event = field(default_factory=asyncio.Event)
    """Set by the caller of `run` when everything is closed."""
    _close_requested: asyncio.Event = field(default_factory=asyncio.Event)
    session: ClientSession = field(init=False)
    revision: Revision = field(init=False)

    def __post_init__(self) -> None:
        self._notifications = NotificationQueue(self._handlers)
        self.param_headers = ParamHeaders()
        self.page_validator = PageValidator(self._options.server_label)

    async def run(self, on_ready: Callable[["ClientConnection", anyio.abc.TaskGroup], Awaitable[None]]) -> None:
        """Connect, call `on_ready`, and wait for `close` or the transport's end.

        Raises the errors of the transport and the handshake, alone or in groups.
        """
        async with AsyncExitStack() as stack:
            async with asyncio.timeout(self._options.startup_timeout):
                await self._connect(stack)
            async with anyio.create_task_group() as group:
                group.start_soon(self._notifications.deliver)
                await on_ready(self, group)
                await self._close_requested.wait()
                group.cancel_scope.cancel()

    def close(self) -> None:
        """Make `run` return."""
        if not self._close_requested.is_set():
            self._close_requested.set()
            if self.on_close is not None:
                self.on_close()

    @property
    def pinned_revision(self) -> Revision | None:
        """The only accepted revision; None if several are accepted."""
        return self._options.revision

    @property
    def is_closing(self) -> bool:
        """Return True if the transport has ended or `close` was called."""
        return self._close_requested.is_set()

    @property
    def is_stateless(self) -> bool:
        """Return True if the revision belongs to the stateless era."""
        return self.revision.era is Era.STATELESS

    async def request(
        self, method: str, params: Mapping[str, Any], *, on_progress: ProgressFnT | None = None
    ) -> dict[str, Any]:
        """Send one request and return its result in wire format.

        Raises:
            MCPError: The server responded with an error, or the connection was closed.
            ValueError: The result violates the revision.
        """
        has_task = self.is_stateless and type(params.get("taskId")) is str
        message = _RawTaskMessage if has_task else _RawMessage
        request: Any = message({"method": method, "params": {**params, "_meta": dict(params.get("_meta") or {})}})
        result = await self.session.send_request(request, cast("Any", _RawMessage), progress_callback=on_progress)
        answer = cast("dict[str, Any]", result)
        return self.param_headers.update(answer) if method == "tools/list" and self.is_stateless else answer

    async def notify(self, notification: types.ClientNotification) -> None:
        """Send a notification."""
        await self.session.send_notification(notification)

    async def _connect(self, stack: AsyncExitStack) -> None:
        read, write = await stack.enter_async_context(self._target.open())

        session = ClientSession(
            dispatcher=_ClientDispatcher(read, write, self),
            client_info=self._options.client_info,
            sampling_callback=self._callbacks.sample if self._callbacks.sampling else None,
            sampling_capabilities=_sampling_capability(self._options),
            elicitation_callback=self._callbacks.elicit if self._callbacks.elicitation else None,
            list_roots_callback=self._callbacks.list_roots if self._callbacks.roots is not None else None,
            logging_callback=self._on_log,
            message_handler=self._on_message,
            extensions={
                name: dict(settings)
                for name, settings in {TASKS_EXTENSION: {}, **(self._options.extensions or {})}.items()
            },
        )

        self.session = await stack.enter_async_context(session)
        await negotiate(session, self._options)
        self.revision = REVISIONS[str(session.protocol_version)]

    async def on_transport_error(self, error: Exception) -> None:
        """Handle a transport error: the reason for its end, or an unreadable message."""
        if isinstance(error, ClientError):
            self.failure = error
        else:
            logger.debug("MCP client transport error: %s", type(error).__name__)

    async def _on_log(self, params: types.LoggingMessageNotificationParams) -> None:
        self._notifications.put("log", params)

    async def _on_message(self, message: types.ServerNotification | Exception) -> None:
        if not isinstance(message, Exception) and (change := get_change(message)) is not None:
            self._notifications.put(*change)

    def queue_change(self, topic: Topic, value: str) -> None:
        """Queue a notification of a possible change for the handlers."""
        self._notifications.put(topic, value)

    def announces_changes(self, kind: ListName) -> bool:
        """Return True if the server announces changes of this list."""
        offered = getattr(self.session.server_capabilities, kind, None)
        return bool(offered is not None and offered.list_changed)


class _ClientDispatcher(JSONRPCDispatcher[TransportContext]):
    """The SDK's dispatcher with additions for this client.

    It closes the connection at the end of the transport, and adapts single methods.
    """

    def __init__(self, read: Any, write: Any, connection: ClientConnection) -> None:
        super().__init__(read, write, on_stream_exception=connection.on_transport_error)
        self._connection = connection

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
            self._connection.close()

    async def send_raw_request(
        self, method: str, params: Mapping[str, Any] | None, opts: CallOptions | None = None, **routing: Any
    ) -> dict[str, Any]:
        adapter = ADAPTERS.get(method, DEFAULT_ADAPTER)
        if params is not None:
            params, opts = adapter.prepare(self._connection, params, opts or {})
        result = await super().send_raw_request(method, params, opts, **routing)
        return adapter.finish(self._connection, method, params or {}, result)


class _RawMessage(dict[str, Any]):
    """A request or result that passes unchanged through the SDK's session, as JSON."""

    name_param: str | None = None

    def model_dump(self, **_: Any) -> dict[str, Any]:
        return self

    @staticmethod
    def model_validate(raw: dict[str, Any], **_: Any) -> dict[str, Any]:
        return raw


class _RawTaskMessage(_RawMessage):
    """A request about a task, whose id the SDK sends in the header `Mcp-Name`, too."""

    name_param = "taskId"


def _sampling_capability(options: ClientOptions) -> types.SamplingCapability | None:
    return types.SamplingCapability(tools=types.SamplingToolsCapability()) if options.sampling_tools else None
