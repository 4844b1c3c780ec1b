"""Creation of clients from `MCP["CLIENTS"]`."""

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import httpx2
from asgiref.sync import iscoroutinefunction, sync_to_async
from django.utils.module_loading import import_string

from mcp_django.client.client import Client
from mcp_django.client.oauth.auth import create_auth
from mcp_django.client.oauth.http import to_http_url
from mcp_django.client.transports.streams import Streams
from mcp_django.client.transports.targets import SSE, Stdio, StreamableHTTP, Target, WebSocket
from mcp_django.conf.clients import ClientSettings


def build_client(
    settings: ClientSettings,
    *,
    user: Any = None,
    headers: Mapping[str, str] | None = None,
    retries: bool = True,
    **options: Any,
) -> Client:
    """Create an unconnected client, which the caller must close.

    `user` owns the credential where AUTH is per user. `headers` are added to those of the setting and override them;
    Authorization among them replaces AUTH. With `retries=False` the client tries once to connect. `options` override
    the setting's options of `Client`. Raises AuthorizationNeeded if a required user is missing.
    """
    client_options: dict[str, Any] = {
        "protocol_version": settings.protocol_version,
        "max_retries": settings.max_retries if retries else 0,
        "startup_timeout": settings.startup_timeout,
        "timeout": settings.timeout,
        "roots": settings.roots or None,
        "sampling": _import_callback(settings.sampling),
        "elicitation": _import_callback(settings.elicitation),
        "log_level": settings.log_level,
        "alias": settings.alias,
    }

    if headers:
        header_names = {name.lower() for name in headers}
        setting_headers = {name: value for name, value in settings.headers.items() if name.lower() not in header_names}
        settings = replace(settings, headers={**setting_headers, **headers})
        if "authorization" in header_names:
            # A caller with its own credential must not also get the project's.
            settings = replace(settings, auth=None)
    return Client(create_target(settings, user), **(client_options | options))


def create_target(settings: ClientSettings, user: Any = None) -> "Target | AuthenticatedWebSocket":
    """Create the target of a server with its credential.

    Raises AuthorizationNeeded if a required user is missing.
    """
    auth = create_auth(settings, user)
    url, headers = settings.url or "", settings.headers
    match settings.kind:
        case "stdio":
            program, *arguments = settings.command or ("",)
            return Stdio(program, arguments, env=settings.env, cwd=settings.cwd)
        case "websocket" if auth is not None:
            return AuthenticatedWebSocket(settings, user)
        case "websocket":
            return WebSocket(url, headers=headers)
        case "sse":
            return SSE(url, headers=headers, auth=auth)
    return StreamableHTTP(url, headers=headers, auth=auth)


class AuthenticatedWebSocket:
    """A WebSocket target that gets a token for each handshake."""

    def __init__(self, settings: ClientSettings, user: Any) -> None:
        self._settings = settings
        self._user = user

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._settings.display_location!r})"

    @asynccontextmanager
    async def open(self) -> AsyncIterator[Streams]:
        """Open the message streams of a connection.

        Raises ClientConnectionError when entered, or when left after the connection broke.
        """
        url, headers = self._settings.url or "", dict(self._settings.headers)
        auth = create_auth(self._settings, self._user)
        if auth is not None:
            flow = auth.async_auth_flow(httpx2.Request("GET", to_http_url(url)))
            request = await anext(flow)
            await flow.aclose()
            headers["Authorization"] = request.headers["Authorization"]
        async with WebSocket(url, headers=headers).open() as streams:
            yield streams


def _import_callback(path: str | None) -> Callable[..., Any] | None:
    """Import a callback by its dotted path.

    Synchronous ones run in a thread and may use the ORM.
    """
    if path is None:
        return None
    function: Callable[..., Any] = import_string(path)
    return function if iscoroutinefunction(function) else sync_to_async(function)
