"""What a client can do: the operations, what is known of the server, and the handlers of what it says."""

import asyncio
from collections.abc import Mapping
from typing import Any

import mcp_types as types

from mcp_django.client.errors import ClientConnectionError, ClientError
from mcp_django.client.options import Options
from mcp_django.client.session.callbacks import Answerers, Elicitation, Roots, Sampling
from mcp_django.client.session.calls import Calls
from mcp_django.client.session.connection_manager import Keeper
from mcp_django.client.session.handlers import Handler, Listeners, ProgressHandler, Unsubscribe
from mcp_django.client.session.observer import Watcher
from mcp_django.client.session.requests import Rounds
from mcp_django.client.session.session import Connection


class Operations:
    """The methods of a `Client` that a `BlockingClient` has, too. All that talk to the server raise ClientError."""

    _options: Options
    _keeper: Keeper
    _rounds: Rounds
    _calls: Calls
    _listeners: Listeners
    _answerers: Answerers

    async def connect(self) -> None:
        """Connect, unless it is connected.

        Raises:
            HandshakeError: The server refused, or speaks no revision that this client speaks.
            AuthorizationNeeded: A person has to allow it first.
            ClientConnectionError: It cannot be reached, or did not answer in time.
        """
        await self._keeper.open()

    async def close(self) -> None:
        """Close the connection. Calls under way fail with ClientConnectionError; `connect()` opens another."""
        await self._keeper.close()

    async def rest(self) -> None:
        """Close the connection; the next call opens another. Calls under way fail with ClientConnectionError."""
        await self._keeper.rest()

    def watch(self, watcher: Watcher) -> None:
        """Tell `watcher`, and no other, what happens to the client."""
        self._keeper.watcher = watcher

    # What is known of the server

    @property
    def alias(self) -> str | None:
        """What the project calls the server."""
        return self._options.alias

    @property
    def is_connected(self) -> bool:
        """Is there a connection, as far as is known?"""
        return self._keeper.is_connected

    @property
    def is_needed(self) -> bool:
        """Does somebody wait for the connection, or want to be told of changes?"""
        return self._keeper.is_needed

    @property
    def last_error(self) -> ClientError | None:
        """Why there is no connection, if the last attempt failed."""
        return self._keeper.last_error

    @property
    def protocol_version(self) -> str:
        """The revision that is spoken. Raises ClientConnectionError before the first connection, as those below do."""
        return self._known.revision.version

    @property
    def capabilities(self) -> types.ServerCapabilities:
        """What the server can do."""
        return self._known.session.server_capabilities or types.ServerCapabilities()

    @property
    def server_info(self) -> types.Implementation | None:
        """What the server tells of itself; None if it does not."""
        return self._known.session.server_info

    @property
    def instructions(self) -> str | None:
        """How the server wants to be used, in its own words."""
        return self._known.session.instructions

    @property
    def _known(self) -> Connection:
        if self._keeper.current is None:
            raise ClientConnectionError(f"{self._options.name} has not been connected to yet")
        return self._keeper.current

    # Operations

    async def list_tools(self, *, timeout: float | None = None) -> list[types.Tool]:
        """All tools. Their `output_schema` is what results of `call_tool` are checked by from then on."""
        return await self._calls.tools(timeout)

    async def call_tool(
        self,
        name: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        timeout: float | None = None,
        on_progress: ProgressHandler | None = None,
        meta: Mapping[str, Any] | None = None,
    ) -> types.CallToolResult:
        """Call a tool, and answer what it asks by `elicitation`, `sampling` and `roots`.

        A tool that fails says so in its result (`is_error`). The call is sent once, whatever happens: after a
        ClientConnectionError or a CallTimeout it is not known whether it was carried out. Cancelling the task cancels
        the call at the server.

        Raises:
            ToolNotFound: The server has no such tool.
            InvalidAnswer: The result does not fit the schema that the server gave for it.
            TypeError: An argument has no JSON form.
        """
        return await self._calls.tool(name, arguments, timeout=timeout, on_progress=on_progress, meta=meta)

    async def list_resources(self, *, timeout: float | None = None) -> list[types.Resource]:
        """All resources."""
        return await self._calls.listed("resources/list", "resources", types.ListResourcesResult, timeout)

    async def list_resource_templates(self, *, timeout: float | None = None) -> list[types.ResourceTemplate]:
        """All templates of resources."""
        key, result = "resource_templates", types.ListResourceTemplatesResult
        return await self._calls.listed("resources/templates/list", key, result, timeout)

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
        return await self._calls.ask("resources/read", {"uri": uri}, types.ReadResourceResult, **options)

    async def list_prompts(self, *, timeout: float | None = None) -> list[types.Prompt]:
        """All prompts."""
        return await self._calls.listed("prompts/list", "prompts", types.ListPromptsResult, timeout)

    async def get_prompt(
        self,
        name: str,
        arguments: Mapping[str, str] | None = None,
        *,
        timeout: float | None = None,
        on_progress: ProgressHandler | None = None,
        meta: Mapping[str, Any] | None = None,
    ) -> types.GetPromptResult:
        """Get a prompt, filled in."""
        params = {"name": name, "arguments": dict(arguments or {})}
        options = {"timeout": timeout, "on_progress": on_progress, "meta": meta}
        return await self._calls.ask("prompts/get", params, types.GetPromptResult, **options)

    async def complete(
        self,
        ref: types.PromptReference | types.ResourceTemplateReference,
        argument: str,
        value: str,
        context: Mapping[str, str] | None = None,
        *,
        timeout: float | None = None,
    ) -> types.Completion:
        """What the value of an argument may be, that begins like `value`; `context` has the arguments known before."""
        params: dict[str, Any] = {
            "ref": ref.model_dump(by_alias=True, mode="json", exclude_none=True),
            "argument": {"name": argument, "value": value},
        }
        if context:
            params["context"] = {"arguments": dict(context)}
        result = await self._calls.ask("completion/complete", params, types.CompleteResult, timeout=timeout)
        return result.completion

    async def subscribe(self, uri: str) -> None:
        """Have `on_resource_updated` told of changes of a resource, also after a connection is made anew."""
        await self._calls.subscribe(uri)

    async def unsubscribe(self, uri: str) -> None:
        """Not any more. Does nothing for what was not subscribed to."""
        await self._calls.unsubscribe(uri)

    async def set_logging_level(self, level: types.LoggingLevel) -> None:
        """Want log messages of this level and above, on this connection and those after it.

        In the handshake era the server is told; in the stateless era each call from now on says so.
        """
        await self._calls.set_logging_level(level)

    async def ping(self, *, timeout: float | None = None) -> None:
        """See that the server answers. The stateless era has no `ping`; there it is asked what it is, which costs as
        little (`server/discover`).
        """
        await self._calls.ping(timeout)

    async def notify_roots_changed(self) -> None:
        """Tell the server that the roots are others. In the stateless era it asks for them in each call anyway."""
        await self._calls.notify_roots_changed()

    async def exchange(
        self,
        method: str,
        params: Mapping[str, Any] | None = None,
        *,
        timeout: float | None = None,
        on_progress: ProgressHandler | None = None,
        meta: Mapping[str, Any] | None = None,
    ) -> dict[str, Any]:
        """One round of any request, for who passes on what others ask: parameters and result as they are on the wire.

        Nothing is answered here: a result whose `resultType` is `input_required` has the questions of the server, and
        the request is sent again with `inputResponses` and `requestState` in `params`. `meta` is added to `_meta`.
        """
        return await self._rounds.send(method, params, timeout=timeout, on_progress=on_progress, meta=meta)

    # What the server says by itself, and what it asks

    def on_progress(self, handler: Handler) -> Unsubscribe:
        """Tell `handler(progress)` of the progress of all calls (a `Progress`), until what is returned is called."""
        return self._listeners.add("progress", handler)

    def on_log(self, handler: Handler) -> Unsubscribe:
        """Tell `handler(message)` what the server logs: `message.level`, `.logger` and `.data`."""
        return self._listeners.add("log", handler)

    def on_list_changed(self, handler: Handler) -> Unsubscribe:
        """Tell `handler(kind)` when a list has changed: "tools", "resources" (or their templates) or "prompts".

        It is also told when a connection was made anew, because changes may have been missed meanwhile.
        """
        return self._listeners.add("list_changed", handler)

    def on_resource_updated(self, handler: Handler) -> Unsubscribe:
        """Tell `handler(uri)` when a resource that was subscribed to has changed, or may have."""
        return self._listeners.add("resource_updated", handler)

    def on_sampling(self, answerer: Sampling) -> Unsubscribe:
        """Ask a model for the server with this. What is there when the client connects is declared to the server."""
        return self._answerers.set("sampling", answerer)

    def on_elicitation(self, answerer: Elicitation) -> Unsubscribe:
        """Ask a person for the server with this, as `on_sampling`."""
        return self._answerers.set("elicitation", answerer)

    def on_roots(self, roots: Roots) -> Unsubscribe:
        """Let the server work in these directories, as `on_sampling`."""
        return self._answerers.set("roots", roots)

    @property
    def loop(self) -> asyncio.AbstractEventLoop | None:
        """The event loop that the client is connected on; None while it is not."""
        return self._keeper.loop
