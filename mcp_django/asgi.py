"""ASGI entry point: `application = mcp_django.asgi.mount(get_asgi_application())`.

Requests and WebSockets for an endpoint go straight to it, all other ones to the application. MIDDLEWARE does not run,
which makes this the fast path. Authentication, permissions, Host and Origin checks belong to the endpoint itself, here
and in the Django view.
"""

import logging
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from functools import partial
from typing import Any, NamedTuple

from django.core.exceptions import ImproperlyConfigured
from django.core.handlers.asgi import ASGIHandler
from django.urls.resolvers import RoutePattern

from mcp_django.conf import get_settings
from mcp_django.protocol.errors import TransportRefusal
from mcp_django.server.server import Server
from mcp_django.transports.factory import (
    build_duplexes,
    build_exchange,
    build_legacy_sse,
    get_exchange,
    get_legacy_sse,
    get_ticket_desk,
)
from mcp_django.transports.http.asgi import Door
from mcp_django.transports.http.django_context import Surroundings
from mcp_django.transports.http.django_request import RequestMaker
from mcp_django.transports.http.django_view import as_view
from mcp_django.transports.http.health import PATH as HEALTHZ
from mcp_django.transports.http.health import Health
from mcp_django.transports.http.messages import Side
from mcp_django.transports.http.websocket_tickets import PATH as TICKET
from mcp_django.transports.http.well_known import WellKnown, below
from mcp_django.transports.legacy_sse import PATH as SSE
from mcp_django.transports.legacy_sse import LegacySSE, serves_legacy_sse
from mcp_django.transports.websocket import NO_SOCKET, Consumer, Sockets, build_sockets, deny, get_sockets
from mcp_django.transports.websocket import PATH as WS
from mcp_django.wiring import aliases, get_server, lifecycle, ports, resources

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Application = Callable[[Any, Any, Any], Awaitable[None]]
"""Any ASGI application; libraries type its three parameters in different ways."""
Endpoint = Callable[[Scope, Receive, Send, Mapping[str, Any] | None], Awaitable[None]]
"""Application that also receives the values captured from the URL."""

logger = logging.getLogger("mcp_django.server")


def mount(application: Application, *, servers: Mapping[str, Server] | None = None) -> Application:
    """Serve the MCP endpoints beside `application`.

    `servers` maps paths such as `"mcp"` to Server instances. By default, the servers of `MCP["SERVERS"]` are served at
    their paths. The result also handles the lifespan messages, which Django does not: the servers' lifespans are
    entered before the first request. If one fails, the process does not start.
    """
    return _Mount(application, servers)


class _Served(NamedTuple):
    """Server with its handlers for each transport."""

    server: Server
    exchange: Side
    sockets: Sockets
    legacy: LegacySSE


def _of_the_setting() -> dict[str, _Served]:
    found = {}
    for alias in aliases():
        path = get_settings().servers[alias].path
        found[path] = _Served(get_server(alias), get_exchange(alias), get_sockets(alias), get_legacy_sse(alias))
    return found


def _of_one_s_own(servers: Mapping[str, Server]) -> dict[str, _Served]:
    shared = [server.alias for server in servers.values()]
    if len(set(shared)) < len(shared):
        raise ImproperlyConfigured("Servers mounted together have the same alias; give each its own: Server(alias=)")

    found = {}
    for written, server in servers.items():
        path = written.strip("/")
        resources().place(server.alias, path)
        bound = server.bind(ports(server.alias))
        found[path] = _Served(
            bound,
            build_exchange(server),
            build_sockets(server, path),
            build_legacy_sse(server, build_duplexes(server)),
        )
    return found


class _Mount:
    def __init__(self, application: Application, servers: Mapping[str, Server] | None) -> None:
        self._application = application
        self._takes_sockets = not _is_django(application)
        found = _of_the_setting() if servers is None else _of_one_s_own(servers)
        self._servers = [served.server for served in found.values()]
        surroundings = Surroundings()
        self._well_known = WellKnown(resources)
        self._http = _Routes(surroundings.prefix)
        self._sockets = _Routes(surroundings.prefix)

        for path, (server, exchange, sockets, _) in found.items():
            if "http" in server.options.transports:
                self._http.add(path, _door(exchange, server, path, surroundings))
            if "websocket" in server.options.transports:
                self._sockets.add(f"{path}/{WS}", _Socket(sockets))
        # The path of a server takes precedence over the subpaths of other servers.
        for path, (server, _, _, legacy) in found.items():
            if serves_legacy_sse(server) and f"/{path}/{SSE}" not in self._http.static:
                self._http.add(f"{path}/{SSE}", _door(legacy, server, f"{path}/{SSE}", surroundings))
            if "websocket" in server.options.transports and f"/{path}/{TICKET}" not in self._http.static:
                desk = get_ticket_desk(server.alias)
                self._http.add(f"{path}/{TICKET}", _door(desk, server, f"{path}/{TICKET}", surroundings))
            if server.options.healthz and f"/{path}/{HEALTHZ}" not in self._http.static:
                self._http.add(f"{path}/{HEALTHZ}", Health(lifecycle).door)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        kind = scope["type"]
        if kind == "http":
            door = self._http.static.get(scope["path"])
            if door is not None:
                return await door(scope, receive, send, None)

            found = self._http.find(scope)
            if found is not None:
                return await found[0](scope, receive, send, found[1])

            asked = below(_below(self._http.root_of(scope), scope["path"]))
            if asked is not None and await self._well_known.door(scope, asked, send):
                return None
        elif kind == "websocket":
            found = self._sockets.find(scope)
            if found is not None:
                return await found[0](scope, receive, send, found[1])
            if not self._takes_sockets:
                return await deny(scope, send, TransportRefusal(404, body=NO_SOCKET))
        elif kind == "lifespan":
            return await self._lifespan(receive, send)

        await self._application(scope, receive, send)

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
                logger.exception("Startup failed; this process cannot serve")
                await send({"type": "lifespan.startup.failed", "message": str(problem)})
                return
            await send({"type": "lifespan.startup.complete"})


class _Routes:
    """Endpoints by path."""

    def __init__(self, root: str) -> None:
        """Create an empty table; `root` overrides the scope's `root_path`."""
        self._root = root
        self.static: dict[str, Endpoint] = {}
        self._dynamic: list[tuple[RoutePattern, Endpoint]] = []

    def add(self, path: str, door: Endpoint) -> None:
        """Serve `path`, with and without a slash at its end."""
        if "<" in path:
            self._dynamic += [(RoutePattern(f"{path}{end}", is_endpoint=True), door) for end in ("", "/")]
        else:
            self.static[f"/{path}"] = self.static[f"/{path}/"] = door

    def root_of(self, scope: Scope) -> str:
        """Return the prefix of all paths of a request."""
        return self._root or scope.get("root_path", "")

    def find(self, scope: Scope) -> tuple[Endpoint, Mapping[str, Any] | None] | None:
        """Return the endpoint of a path with the captured values, or None."""
        path = scope["path"]
        door = self.static.get(path)
        if door is not None:
            return door, None

        root = self.root_of(scope)
        if not (root or self._dynamic):
            return None

        path = _below(root, path)
        door = self.static.get(path)
        if door is not None:
            return door, {}
        for pattern, door in self._dynamic:
            match = pattern.match(path.removeprefix("/"))
            if match:
                return door, match[2]
        return None


class _Socket:
    """WebSockets of a server as an endpoint.

    The captured values are passed as Channels' URLRouter does.
    """

    def __init__(self, sockets: Sockets) -> None:
        self._sockets = sockets

    async def __call__(self, scope: Scope, receive: Receive, send: Send, kwargs: Mapping[str, Any] | None) -> None:
        scope = {**scope, "url_route": {"args": (), "kwargs": dict(kwargs or {})}}
        await Consumer(sockets=self._sockets)(scope, receive, send)


def _is_django(application: Any) -> bool:
    """Return True for Django's own ASGI handler.

    It raises ValueError for protocols other than HTTP. A handler for static files may wrap it, and passes all other
    requests on.
    """
    while isinstance(application, ASGIHandler) and hasattr(application, "application"):
        application = application.application
    return type(application) is ASGIHandler


def _door(side: Side, server: Server, path: str, surroundings: Surroundings) -> Door:
    view = as_view(partial(_the, side))
    return Door(side, RequestMaker(view, alias=server.alias, route=path), surroundings)


def _the(side: Side) -> Side:
    return side


def _below(root: str, path: str) -> str:
    """Return the path without `root`, which some servers have removed already."""
    rest = path.removeprefix(root.rstrip("/"))
    return rest if rest.startswith("/") else path
