"""The ASGI door: `application = mcp_django.asgi.mount(get_asgi_application())`.

Requests to an endpoint go straight to it; everything else goes to the application. The endpoints' MIDDLEWARE is not
run, which is what makes this the fast path: authentication, permissions, Host and Origin checks are the endpoint's
own on both doors.
"""

import logging
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from functools import partial
from typing import Any

from django.core.exceptions import ImproperlyConfigured
from django.urls.resolvers import RoutePattern

from .conf import get_settings
from .server.server import Server
from .transports.http.asgi import Door
from .transports.http.endpoint import build_exchange, get_exchange
from .transports.http.exchange import Exchange
from .transports.http.health import PATH as HEALTHZ
from .transports.http.health import Health
from .transports.http.requests import RequestMaker
from .transports.http.surroundings import Surroundings
from .transports.http.view import as_view
from .wiring import aliases, get_server, lifecycle, ports

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Application = Callable[[Any, Any, Any], Awaitable[None]]
"""Any ASGI application; libraries type its three parameters in as many ways as there are."""
Endpoint = Callable[[Scope, Receive, Send, Mapping[str, Any] | None], Awaitable[None]]
"""An application that is also given what the URL captured."""

logger = logging.getLogger("mcp_django.server")


def mount(application: Application, *, servers: Mapping[str, Server] | None = None) -> Application:
    """Serve the MCP endpoints beside `application`.

    `servers` maps paths such as `"mcp"` to servers of your own making; without it, those of `MCP["SERVERS"]` are
    served at their paths. The result also answers the server's lifespan messages, which Django does not: the servers'
    lifespans are entered before the first request, and one that fails keeps the process from starting.
    """
    return _Mount(application, servers)


class _Mount:
    def __init__(self, application: Application, servers: Mapping[str, Server] | None) -> None:
        self._application = application
        if servers is None:
            settings = get_settings()
            found = {settings.servers[alias].path: (get_server(alias), get_exchange(alias)) for alias in aliases()}
        else:
            shared = [server.alias for server in servers.values()]
            if len(set(shared)) < len(shared):
                raise ImproperlyConfigured(
                    "Servers that are mounted together need aliases of their own: Server(alias=)"
                )
            found = {
                path.strip("/"): (server.bind(ports(server.alias)), build_exchange(server))
                for path, server in servers.items()
            }
        self._servers = [server for server, _ in found.values()]
        self._static: dict[str, Endpoint] = {}
        self._dynamic: list[tuple[RoutePattern, Endpoint]] = []
        surroundings = Surroundings()
        self._root = surroundings.prefix
        for path, (server, exchange) in found.items():
            view = as_view(partial(_the, exchange))
            self._add(path, Door(exchange, RequestMaker(view, alias=server.alias, route=path), surroundings))
        for path, (server, _) in found.items():
            if server.options.healthz and f"/{path}/{HEALTHZ}" not in self._static:
                self._add(f"{path}/{HEALTHZ}", Health(lifecycle).door)

    def _add(self, path: str, door: Endpoint) -> None:
        if "<" in path:
            self._dynamic += [(RoutePattern(f"{path}{end}", is_endpoint=True), door) for end in ("", "/")]
        else:
            self._static[f"/{path}"] = self._static[f"/{path}/"] = door

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        kind = scope["type"]
        if kind == "http":
            path = scope["path"]
            door = self._static.get(path)
            if door is not None:
                return await door(scope, receive, send, None)
            root = self._root or scope.get("root_path", "")
            if root or self._dynamic:
                found = self._find(_below(root, path))
                if found is not None:
                    return await found[0](scope, receive, send, found[1])
        elif kind == "lifespan":
            return await self._lifespan(receive, send)
        await self._application(scope, receive, send)

    def _find(self, path: str) -> tuple[Endpoint, Mapping[str, Any]] | None:
        door = self._static.get(path)
        if door is not None:
            return door, {}
        for pattern, door in self._dynamic:
            match = pattern.match(path.removeprefix("/"))
            if match:
                return door, match[2]
        return None

    async def _lifespan(self, receive: Receive, send: Send) -> None:
        while True:
            message = await receive()
            if message["type"] == "lifespan.shutdown":
                await lifecycle().close()
                await send({"type": "lifespan.shutdown.complete"})
                return
            try:
                await lifecycle().open(self._servers)
            except RuntimeError as problem:
                logger.exception("This process cannot serve")
                await send({"type": "lifespan.startup.failed", "message": str(problem)})
                return
            await send({"type": "lifespan.startup.complete"})


def _the(exchange: Exchange) -> Exchange:
    return exchange


def _below(root: str, path: str) -> str:
    """The path as the project writes it; some servers have `root` left off already."""
    rest = path.removeprefix(root.rstrip("/"))
    return rest if rest.startswith("/") else path
