"""A client as `MCP["CLIENTS"]` describes it."""

import inspect
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import replace
from typing import Any

import httpx2
from asgiref.sync import sync_to_async
from django.utils.module_loading import import_string

from mcp_django.client.client import Client
from mcp_django.client.oauth.auth import auth_for
from mcp_django.client.oauth.http import web_url
from mcp_django.client.transports.streams import Streams
from mcp_django.client.transports.targets import SSE, Stdio, StreamableHTTP, Target, WebSocket
from mcp_django.conf.clients import ClientSettings


def build_client(
    settings: ClientSettings,
    *,
    user: Any = None,
    headers: Mapping[str, str] | None = None,
    patient: bool = True,
    **options: Any,
) -> Client:
    """A client of its own, which is not connected; who asks for it closes it.

    `user` is in whose name, where AUTH is per user. `headers` are sent besides those of the setting, and in their
    place; Authorization among them in that of AUTH. One that is not `patient` tries once to connect. `options` are
    those of `Client`, in place of the setting's. Raises AuthorizationNeeded where a user is missing.
    """
    told: dict[str, Any] = {
        "protocol_version": settings.protocol_version,
        "max_retries": settings.max_retries if patient else 0,
        "startup_timeout": settings.startup_timeout,
        "timeout": settings.timeout,
        "roots": settings.roots or None,
        "sampling": _answerer(settings.sampling),
        "elicitation": _answerer(settings.elicitation),
        "log_level": settings.log_level,
        "alias": settings.alias,
    }
    if headers:
        mine = {name.lower() for name in headers}
        kept = {name: value for name, value in settings.headers.items() if name.lower() not in mine}
        settings = replace(settings, headers={**kept, **headers})
        if "authorization" in mine:
            # Whoever shows a credential of their own is not helped to that of the project.
            settings = replace(settings, auth=None)
    return Client(target_of(settings, user), **(told | options))


def target_of(settings: ClientSettings, user: Any = None) -> "Target | TokenSocket":
    """Where the server is, with the credential that goes there. Raises AuthorizationNeeded where a user is missing."""
    auth = auth_for(settings, user)
    url, headers = settings.url or "", settings.headers
    match settings.kind:
        case "stdio":
            program, *arguments = settings.command or ("",)
            return Stdio(program, arguments, env=settings.env, cwd=settings.cwd)
        case "websocket" if auth is not None:
            return TokenSocket(settings, user)
        case "websocket":
            return WebSocket(url, headers=headers)
        case "sse":
            return SSE(url, headers=headers, auth=auth)
    return StreamableHTTP(url, headers=headers, auth=auth)


class TokenSocket:
    """A WebSocket whose handshake has a token, asked for each time."""

    def __init__(self, settings: ClientSettings, user: Any) -> None:
        self._settings, self._user = settings, user

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._settings.place!r})"

    def open(self) -> AbstractAsyncContextManager[Streams]:
        """The streams of a connection. Raises ClientConnectionError when entered, or left after it broke."""
        return self._open()

    @asynccontextmanager
    async def _open(self) -> AsyncIterator[Streams]:
        url, headers = self._settings.url or "", dict(self._settings.headers)
        auth = auth_for(self._settings, self._user)
        if auth is not None:
            flow = auth.async_auth_flow(httpx2.Request("GET", web_url(url)))
            request = await anext(flow)
            await flow.aclose()
            headers["Authorization"] = request.headers["Authorization"]
        async with WebSocket(url, headers=headers).open() as streams:
            yield streams


def _answerer(path: str | None) -> Callable[..., Any] | None:
    """The function at a dotted path. A plain one runs in a thread, where it may use the ORM."""
    if path is None:
        return None
    function: Callable[..., Any] = import_string(path)
    return function if inspect.iscoroutinefunction(function) else sync_to_async(function)
