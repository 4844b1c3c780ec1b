"""Calls of remote primitives: the handlers of the proxy's tools, prompts and resources."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from mcp_django.client import AuthorizationNeeded, Client, ClientError
from mcp_django.contrib.proxies.authorization import request_authorization
from mcp_django.contrib.proxies.catalog.components import REMOTE_NAME_KEY, RemoteTool
from mcp_django.contrib.proxies.catalog.remote_skills import REMOTE_FILE_KEY, RemoteFile, verify_file
from mcp_django.contrib.proxies.connections.credentials import CallerCredentials, RemoteCredential
from mcp_django.contrib.proxies.connections.sessions import can_log, get_caller_capabilities, omit_unused
from mcp_django.contrib.proxies.forwarding import results
from mcp_django.contrib.proxies.forwarding.failures import build_unknown_error, translate_error
from mcp_django.contrib.proxies.forwarding.forwarding import ForwardedRequest, ForwardingOptions
from mcp_django.contrib.proxies.forwarding.uris import convert_uris
from mcp_django.contrib.proxies.loop_state import LoopState
from mcp_django.contrib.proxies.options import ProxyOptions
from mcp_django.contrib.proxies.remote_catalogs import RemoteCatalogs
from mcp_django.extensions.calls import Context, get_logger
from mcp_django.extensions.errors import ToolError
from mcp_django.extensions.event_loop import LoopLocal
from mcp_django.extensions.primitives import Completion, RelayedResult
from mcp_django.providers.prefixes import NamePrefixes

logger = get_logger("mcp_django.client")

Wire = dict[str, Any]
Parse = Callable[[Wire], RelayedResult]
"""Function that checks the result of a remote server. Raises MalformedResult."""


class RemoteCaller:
    """Caller of the remote primitives of one proxy."""

    def __init__(
        self,
        name: str,
        naming: NamePrefixes,
        options: ProxyOptions,
        *,
        credentials: CallerCredentials,
        states: LoopLocal[LoopState],
        catalogs: RemoteCatalogs,
    ) -> None:
        self._name = name
        self._naming = naming
        self._options = options
        self._credentials = credentials
        self._states = states
        self._catalogs = catalogs
        self._convert_uri = None if options.uri_prefix is None else naming.uri

    @property
    def handlers(self) -> Mapping[str, Callable[..., Any]]:
        """Handlers of tools, resources and prompts by kind."""
        return {"tool": self._call_tool, "resource": self._read_resource, "prompt": self._get_prompt}

    async def _call_tool(self, ctx: Context, arguments: dict[str, Any]) -> RelayedResult:
        tool = ctx.tool
        assert isinstance(tool, RemoteTool)
        params = {"name": tool.metadata[REMOTE_NAME_KEY], "arguments": arguments}
        request = ForwardedRequest("tools/call", params, tool.is_repeatable, tool.requires_task)
        parse = partial(
            results.parse_tool_result,
            output=tool.output,
            origin=self._naming.tool_prefix,
            is_for_pages=tool.is_for_pages,
        )
        return await self._convert(ctx, await self._send(ctx, request, tool.name), parse)

    async def _get_prompt(self, ctx: Context, arguments: dict[str, str]) -> RelayedResult:
        params = {"name": ctx.metadata[REMOTE_NAME_KEY], "arguments": arguments}
        raw = await self._send(ctx, ForwardedRequest("prompts/get", params, True), ctx.name or "")
        return await self._convert(ctx, raw, results.parse_prompt_result)

    async def _read_resource(self, ctx: Context) -> RelayedResult:
        remote_uri = ctx.metadata[REMOTE_NAME_KEY]
        request = ForwardedRequest("resources/read", {"uri": remote_uri}, True)
        raw = await self._send(ctx, request, self._naming.uri(remote_uri))
        file: RemoteFile | None = ctx.metadata.get(REMOTE_FILE_KEY)
        if file is not None:
            await verify_file(file, raw, partial(self._refresh_skills, ctx), self._options.list_timeout)
        return await self._convert(ctx, raw, results.parse_read_result)

    async def complete(self, ctx: Context, params: Wire) -> Completion:
        """Return the completions of the remote server; none if it fails."""
        try:
            state = self._states.get()
            client = state.get_client(await self._credentials.get(ctx))
            request = ForwardedRequest("completion/complete", params, True)
            return results.parse_completion(await state.forwarder.exchange(client, request, None))
        except (ClientError, results.MalformedResult, ToolError):
            return Completion(())

    async def subscribe_resource(self, ctx: Context, callback: Callable[[], None]) -> Callable[[], None]:
        """Subscribe to the remote resource of `ctx` as its caller. See `Resource.follow`."""
        credential = await self._credentials.get(ctx)
        upstream = self._states.get().get_upstream(credential)
        if upstream is None:
            logger.warning("Too many credentials with subscriptions to the server %r; one more was refused", self._name)
            return _do_nothing
        return await upstream.subscribe(ctx.metadata[REMOTE_NAME_KEY], credential.owner, callback)

    async def check_connected(self, ctx: Context) -> str:
        """Handle the tool that is listed while the caller has not authorized the server."""
        try:
            try:
                credential = await self._connect(ctx)
            except AuthorizationNeeded as problem:
                await request_authorization(ctx, self._name, problem)
                credential = await self._connect(ctx)
        except ClientError as problem:
            raise translate_error(problem, self._name, "tools/call", self._name, ctx) from None
        self._catalogs.invalidate(credential)
        return f"{self._name} is connected. List the tools again"

    async def _connect(self, ctx: Context) -> RemoteCredential:
        """Connect with the caller's credential, and return it. Raises ClientError."""
        credential = await self._credentials.get(ctx)
        await self._states.get().get_client(credential).connect()
        return credential

    async def _refresh_skills(self, ctx: Context) -> Client:
        """Invalidate the resources, and return the client that fetches the entry of a skill again."""
        credential = await self._credentials.get(ctx)
        self._catalogs.invalidate(credential, ["resources"])
        return self._states.get().get_client(credential)

    async def _convert(self, ctx: Context, raw: Wire, parse: Parse) -> RelayedResult:
        """Return a result with local URIs. Raises ToolError for a malformed one."""
        try:
            body = parse(raw)
        except results.MalformedResult as problem:
            raise ToolError(f"The server {self._name!r} sent an invalid response: {problem}") from None
        return await convert_uris(ctx, body, self._convert_uri, self._name)

    async def _send(self, ctx: Context, request: ForwardedRequest, local_name: str) -> Wire:
        """Send one request to the remote server; translate its errors for the client."""
        try:
            return await self._forward(ctx, request)
        except AuthorizationNeeded as problem:
            await self._discard_credential(ctx)
            await request_authorization(ctx, self._name, problem)
            try:
                return await self._forward(ctx, request, 1)
            except ClientError as again:
                raise translate_error(again, self._name, request.method, local_name, ctx) from None
        except ClientError as problem:
            failure = translate_error(problem, self._name, request.method, local_name, ctx)
            if type(failure) is type(build_unknown_error(request.method, local_name)):
                credential = await self._credentials.find(ctx)
                if credential is not None:
                    self._catalogs.invalidate(credential)
            raise failure from None

    async def _discard_credential(self, ctx: Context) -> None:
        """Close the idle sessions and invalidate the lists of a rejected credential."""
        credential = await self._credentials.find(ctx)
        if credential is not None:
            self._states.get().sessions.close_idle(credential.session_key)
            self._catalogs.invalidate(credential)

    async def _forward(self, ctx: Context, request: ForwardedRequest, attempt: int = 0) -> Wire:
        state, credential = self._states.get(), await self._credentials.get(ctx)
        client = state.get_client(credential)
        capabilities = get_caller_capabilities(ctx, self._options.client_features)
        level = ctx.log_level if self._options.logs and ctx.call.connection.supports_streaming else None
        if not client.is_connected and (capabilities.requests or level):
            await client.connect()
        if client.is_connected:
            capabilities = omit_unused(capabilities, client)
        if level is not None and not can_log(client):
            level = None
        if not capabilities.requests and (level is None or state.sessions.is_exhausted):
            # The caller supports no requests, and a log alone does not justify waiting for a session.
            return await state.forwarder.exchange(client, request, ctx)
        acquire_session = partial(state.acquire_session, credential, capabilities)
        options = ForwardingOptions(credential.owner, level, acquire_session, attempt)
        return await state.forwarder.converse(ctx, request, options)


def _do_nothing() -> None:
    pass
