"""Public operations of a client: requests, server information, and handlers."""

import asyncio
from collections.abc import Mapping
from typing import Any

import mcp_types as types

from mcp_django.client.errors import ClientConnectionError, ClientError
from mcp_django.client.options import ClientOptions
from mcp_django.client.session.callbacks import (
    ElicitationCallback,
    RootsSource,
    SamplingCallback,
    ServerRequestCallbacks,
)
from mcp_django.client.session.connection_manager import ClientObserver, ConnectionManager
from mcp_django.client.session.handlers import NotificationHandler, NotificationHandlers, ProgressHandler, Unsubscribe
from mcp_django.client.session.requests import RequestSender
from mcp_django.client.session.session import ClientConnection
from mcp_django.client.skills import ClientSkill, SkillReader
from mcp_django.client.tasks.task_handle import ClientTask
from mcp_django.client.tasks.tool_caller import ToolCaller


class ServerInformation:
    """State of a connection, for `Client` and `BlockingClient`."""

    _options: ClientOptions
    _manager: ConnectionManager

    @property
    def alias(self) -> str | None:
        """The project's alias of the server."""
        return self._options.alias

    @property
    def is_connected(self) -> bool:
        """Return True if there is an open connection, as far as the client can detect."""
        return self._manager.is_connected

    @property
    def is_needed(self) -> bool:
        """Return True if calls wait for it, or handlers for changes are registered."""
        return self._manager.is_needed

    @property
    def last_error(self) -> ClientError | None:
        """The error of the last attempt to connect; None after a successful one."""
        return self._manager.last_error

    @property
    def protocol_version(self) -> str:
        """The negotiated protocol revision.

        This property and those below raise ClientConnectionError before the first connection.
        """
        return self._connection.revision.version

    @property
    def capabilities(self) -> types.ServerCapabilities:
        """The server's capabilities."""
        return self._connection.session.server_capabilities or types.ServerCapabilities()

    @property
    def server_info(self) -> types.Implementation | None:
        """The server's name and version as sent by the server, or None."""
        return self._connection.session.server_info

    @property
    def instructions(self) -> str | None:
        """The server's usage instructions, or None."""
        return self._connection.session.instructions

    @property
    def _connection(self) -> ClientConnection:
        if self._manager.current is None:
            raise ClientConnectionError(f"{self._options.server_label} is not connected yet; call connect() first")
        return self._manager.current


class Operations(ServerInformation):
    """The methods shared by `Client` and `BlockingClient`.

    Methods that send requests raise ClientError.
    """

    _sender: RequestSender
    tool_caller: ToolCaller
    _skill_reader: SkillReader
    _handlers: NotificationHandlers
    _callbacks: ServerRequestCallbacks

    async def connect(self) -> None:
        """Connect, unless already connected.

        Raises:
            HandshakeError: The server refused, or supports none of this client's revisions.
            AuthorizationNeeded: A person must authorize the server first.
            ClientConnectionError: The server is unreachable, or did not respond in time.
        """
        await self._manager.open()

    async def close(self) -> None:
        """Close the connection; `connect()` opens another.

        Running calls fail with ClientConnectionError.
        """
        await self._manager.close()

    async def disconnect(self) -> None:
        """Close the connection; the next call opens another.

        Running calls fail with ClientConnectionError.
        """
        await self._manager.disconnect()

    def set_observer(self, observer: ClientObserver) -> None:
        """Set the observer of the client, in place of any previous one."""
        self._manager.observer = observer

    # Operations

    async def list_tools(self, *, timeout: float | None = None) -> list[types.Tool]:
        """List all tools.

        Later results of `call_tool` are validated against their `output_schema`.
        """
        return await self.tool_caller.list_tools(timeout)

    async def call_tool(
        self,
        name: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        timeout: float | None = None,
        on_progress: ProgressHandler | None = None,
        meta: Mapping[str, Any] | None = None,
    ) -> types.CallToolResult:
        """Call a tool, and answer its input requests by the client's callbacks.

        A failed tool is reported in its result (`is_error`). The call is sent only once: after a ClientConnectionError
        or CallTimeout its outcome is unknown. Cancelling the caller cancels the call on the server.

        If the server answers with a task, this method waits for its end, also across outages of the connection. Then
        `timeout` limits the whole wait. Messages of the task are reported as progress.

        Raises:
            ToolNotFound: The server has no such tool.
            TaskCancelled: The server cancelled the task of the call.
            TaskNotFound: The task of the call has expired.
            InvalidAnswer: The result does not match the tool's output schema.
            TypeError: An argument cannot be encoded as JSON.
        """
        return await self.tool_caller.call(name, arguments, timeout=timeout, on_progress=on_progress, meta=meta)

    async def call_tool_task(
        self,
        name: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        ttl: float | None = None,
        timeout: float | None = None,
        on_progress: ProgressHandler | None = None,
        meta: Mapping[str, Any] | None = None,
    ) -> ClientTask:
        """Call a tool without waiting for the end of its task, and return the task.

        The server decides whether the call becomes a task. If not, this method waits for the result like `call_tool`.
        `ttl` is the wanted lifetime of the task in seconds; only servers of 2025-11-25 consider it.

        Raises the errors of `call_tool`.
        """
        return await self.tool_caller.start_task(
            name, arguments, ttl=ttl, timeout=timeout, on_progress=on_progress, meta=meta
        )

    def get_task(self, id: str, tool: str | None = None) -> ClientTask:
        """Return the handle of a task that was created earlier, also by another process.

        No request is sent. With the name of its `tool`, the result is validated like that of `call_tool`. Raises
        ValueError for an id that is empty or too long.
        """
        return self.tool_caller.restore_task(id, tool)

    async def list_resources(self, *, timeout: float | None = None) -> list[types.Resource]:
        """List the resources of all pages."""
        return await self._sender.list_all("resources/list", "resources", types.ListResourcesResult, timeout)

    async def list_resource_templates(self, *, timeout: float | None = None) -> list[types.ResourceTemplate]:
        """List the resource templates of all pages."""
        key, result = "resource_templates", types.ListResourceTemplatesResult
        return await self._sender.list_all("resources/templates/list", key, result, timeout)

    async def read_resource(
        self,
        uri: str,
        *,
        timeout: float | None = None,
        on_progress: ProgressHandler | None = None,
        meta: Mapping[str, Any] | None = None,
    ) -> types.ReadResourceResult:
        """Read the resource at a URI."""
        options = {"timeout": timeout, "on_progress": on_progress, "meta": meta}
        return await self._sender.request("resources/read", {"uri": uri}, types.ReadResourceResult, **options)

    async def list_skills(self, *, timeout: float | None = None) -> list[ClientSkill]:
        """List all skills; none if the server lacks the extension.

        Entries that break a rule are left out, and logged.
        """
        await self.connect()
        return await self._skill_reader.list_skills(timeout)

    async def get_skill(self, uri: str, *, timeout: float | None = None) -> ClientSkill:
        """Return the current entry of a skill, by the URI of its `SKILL.md`. The server may not list it.

        Raises:
            CallError: The server has no such skill.
            InvalidAnswer: The entry breaks a rule.
        """
        await self.connect()
        return await self._skill_reader.get_skill(uri, timeout)

    async def list_prompts(self, *, timeout: float | None = None) -> list[types.Prompt]:
        """List the prompts of all pages."""
        return await self._sender.list_all("prompts/list", "prompts", types.ListPromptsResult, timeout)

    async def get_prompt(
        self,
        name: str,
        arguments: Mapping[str, str] | None = None,
        *,
        timeout: float | None = None,
        on_progress: ProgressHandler | None = None,
        meta: Mapping[str, Any] | None = None,
    ) -> types.GetPromptResult:
        """Get a prompt rendered with the arguments."""
        params = {"name": name, "arguments": dict(arguments or {})}
        options = {"timeout": timeout, "on_progress": on_progress, "meta": meta}
        return await self._sender.request("prompts/get", params, types.GetPromptResult, **options)

    async def complete(
        self,
        ref: types.PromptReference | types.ResourceTemplateReference,
        argument: str,
        value: str,
        context: Mapping[str, str] | None = None,
        *,
        timeout: float | None = None,
    ) -> types.Completion:
        """Complete the value of an argument.

        `context` holds the arguments that are already set.
        """
        params: dict[str, Any] = {
            "ref": ref.model_dump(by_alias=True, mode="json", exclude_none=True),
            "argument": {"name": argument, "value": value},
        }
        if context:
            params["context"] = {"arguments": dict(context)}
        result = await self._sender.request("completion/complete", params, types.CompleteResult, timeout=timeout)
        return result.completion

    async def subscribe(self, uri: str) -> None:
        """Subscribe to changes of a resource, also after reconnects.

        Changes call the handlers of `on_resource_updated`.
        """
        connection = await self._manager.get_connection()
        was_subscribed = uri in self._manager.subscribed
        self._manager.subscribed[uri] = None
        try:
            if connection.is_stateless:
                await self._manager.add_subscription(uri)
            else:
                await self._sender.send("resources/subscribe", {"uri": uri})
        except BaseException:
            if not was_subscribed:
                self._manager.subscribed.pop(uri, None)
            raise

    async def unsubscribe(self, uri: str) -> None:
        """Cancel a subscription; does nothing without one."""
        if uri not in self._manager.subscribed:
            return
        del self._manager.subscribed[uri]
        connection = await self._manager.get_connection()
        if connection.is_stateless:
            self._manager.refresh_subscriptions()
        else:
            await self._sender.send("resources/unsubscribe", {"uri": uri})

    async def set_logging_level(self, level: types.LoggingLevel) -> None:
        """Set the minimum level of log messages to receive, on this and later connections.

        In the handshake era a request is sent to the server. In the stateless era the level is part of each later call.
        """
        connection = await self._manager.get_connection()
        if not connection.is_stateless:
            await self._sender.send("logging/setLevel", {"level": level})
        self._manager.log_level = level

    async def ping(self, *, timeout: float | None = None) -> None:
        """Check that the server responds.

        The stateless era has no `ping`; `server/discover` is sent instead, at about the same cost.
        """
        connection = await self._manager.get_connection()
        await self._sender.send("server/discover" if connection.is_stateless else "ping", timeout=timeout)

    async def notify_roots_changed(self) -> None:
        """Notify the server of changed roots.

        In the stateless era it requests them in each call.
        """
        connection = await self._manager.get_connection()
        if not connection.is_stateless:
            await connection.notify(types.RootsListChangedNotification())

    async def exchange(
        self,
        method: str,
        params: Mapping[str, Any] | None = None,
        *,
        timeout: float | None = None,
        on_progress: ProgressHandler | None = None,
        meta: Mapping[str, Any] | None = None,
    ) -> dict[str, Any]:
        """Send one round of any request, with parameters and result in wire format.

        Meant for forwarding requests of other clients. Input requests are not handled: a result with `resultType`
        `input_required` contains them. To continue, repeat the request with `inputResponses` and `requestState` in
        `params`. A result with `resultType` `task` is a task, which `get_task` follows. `meta` is merged into `_meta`.
        """
        return await self._sender.send(method, params, timeout=timeout, on_progress=on_progress, meta=meta)

    # Handlers for notifications, and callbacks for requests of the server

    def on_progress(self, handler: NotificationHandler) -> Unsubscribe:
        """Call `handler(progress)` with the `Progress` of all calls.

        Returns a function that removes it.
        """
        return self._handlers.add("progress", handler)

    def on_log(self, handler: NotificationHandler) -> Unsubscribe:
        """Call `handler(message)` for log messages of the server.

        A message has `level`, `logger` and `data`.
        """
        return self._handlers.add("log", handler)

    def on_list_changed(self, handler: NotificationHandler) -> Unsubscribe:
        """Call `handler(kind)` for a changed list.

        `kind` is "tools", "resources" (also for templates) or "prompts". The handler is also called after a reconnect,
        because changes may have been missed.
        """
        return self._handlers.add("list_changed", handler)

    def on_resource_updated(self, handler: NotificationHandler) -> Unsubscribe:
        """Call `handler(uri)` when a subscribed resource has changed, or may have changed."""
        return self._handlers.add("resource_updated", handler)

    def on_sampling(self, callback: SamplingCallback) -> Unsubscribe:
        """Set the sampling callback.

        Only callbacks set before connecting are declared to the server.
        """
        return self._callbacks.set("sampling", callback)

    def on_elicitation(self, callback: ElicitationCallback) -> Unsubscribe:
        """Set the elicitation callback, under the same condition as `on_sampling`."""
        return self._callbacks.set("elicitation", callback)

    def on_roots(self, roots: RootsSource) -> Unsubscribe:
        """Set the directories for the server, under the condition of `on_sampling`."""
        return self._callbacks.set("roots", roots)

    @property
    def loop(self) -> asyncio.AbstractEventLoop | None:
        """The event loop of the connection; None without a connection."""
        return self._manager.loop
