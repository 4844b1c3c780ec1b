"""ASGI entry point: `application = mcp_django.asgi.mount(get_asgi_application())`.

Requests and WebSockets for an endpoint go straight to it, all other ones to the application. MIDDLEWARE does not run,
which makes this the fast path. Authentication, permissions, Host and Origin checks belong to the endpoint itself, here
and in the Django view.
"""

from collections.abc import Awaitable, Callable, Iterable, Mapping, MutableMapping
from functools import partial
from typing import Any, NamedTuple

from django.core.exceptions import ImproperlyConfigured
from django.core.handlers.asgi import ASGIHandler
from django.urls.resolvers import RoutePattern

from mcp_django.conf import get_settings
from mcp_django.conf.project import middleware
from mcp_django.protocol.errors import TransportRefusal
from mcp_django.protocol.log_text import get_logger
from mcp_django.runtime.list_preparation import ListPreparation
from mcp_django.server.server import Server
from mcp_django.transports.http.asgi import StreamableHTTPApp
from mcp_django.transports.http.django_context import DjangoContext
from mcp_django.transports.http.django_request import DjangoRequestFactory
from mcp_django.transports.http.django_view import as_view
from mcp_django.transports.http.endpoint import HTTPEndpoint
from mcp_django.transports.http.handler import StreamableHTTPEndpoint, get_http_endpoint
from mcp_django.transports.http.health import PATH as HEALTHZ
from mcp_django.transports.http.health import HealthEndpoint
from mcp_django.transports.http.websocket_tickets import PATH as TICKET
from mcp_django.transports.http.websocket_tickets import TicketEndpoint, get_ticket_endpoint
from mcp_django.transports.http.well_known import WellKnownEndpoint, get_well_known_path
from mcp_django.transports.legacy_sse import PATH as SSE
from mcp_django.transports.legacy_sse import LegacySSEEndpoint, get_legacy_sse, is_legacy_sse_enabled
from mcp_django.transports.services import build_services
from mcp_django.transports.websocket import (
    NOT_FOUND_BODY,
    Consumer,
    WebSocketAcceptor,
    build_websocket_acceptor,
    deny_handshake,
    get_websocket_acceptor,
)
from mcp_django.transports.websocket import PATH as WS
from mcp_django.wiring import get_ports, get_server, get_services, list_aliases

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Application = Callable[[Any, Any, Any], Awaitable[None]]
"""Any ASGI application; libraries type its three parameters in different ways."""
Endpoint = Callable[[Scope, Receive, Send, Mapping[str, Any] | None], Awaitable[None]]
"""Application that also receives the values captured from the URL."""

CHANGE_LOG_MIDDLEWARE = frozenset(
    {
        "auditlog.middleware.AuditlogMiddleware",
        "crum.CurrentRequestUserMiddleware",
        "netbox.middleware.CoreMiddleware",
        "reversion.middleware.RevisionMiddleware",
        "simple_history.middleware.HistoryRequestMiddleware",
    }
)
"""MIDDLEWARE of packages that log changes with the user of the request."""

logger = get_logger("mcp_django.server")


def mount(application: Application, *, servers: Mapping[str, Server] | None = None) -> Application:
    """Serve the MCP endpoints beside `application`.

    `servers` maps paths such as `"mcp"` to Server instances. By default, the servers of `MCP["SERVERS"]` are served at
    their paths. The result also handles the lifespan messages, which Django does not: the servers' lifespans are
    entered before the first request. If one fails, the process does not start.
    """
    return _MountedApplication(application, servers)


class _ServedEndpoint(NamedTuple):
    """Server with its handlers for each transport."""

    server: Server
    exchange: HTTPEndpoint
    sockets: WebSocketAcceptor
    legacy: LegacySSEEndpoint
    tickets: TicketEndpoint


def _build_configured() -> dict[str, _ServedEndpoint]:
    endpoints = {}
    for alias in list_aliases():
        path = get_settings().servers[alias].path
        endpoints[path] = _ServedEndpoint(
            get_server(alias),
            get_http_endpoint(alias),
            get_websocket_acceptor(alias),
            get_legacy_sse(alias),
            get_ticket_endpoint(alias),
        )
    return endpoints


def _build_given(servers: Mapping[str, Server]) -> dict[str, _ServedEndpoint]:
    server_aliases = [server.alias for server in servers.values()]
    if len(set(server_aliases)) < len(server_aliases):
        raise ImproperlyConfigured("Servers mounted together have the same alias; give each its own: Server(alias=)")

    endpoints = {}
    for raw_path, server in servers.items():
        path = raw_path.strip("/")
        get_services().resource_registry.set_path(server.alias, path)
        services = build_services(server.bind(get_ports(server.alias)))
        endpoints[path] = _ServedEndpoint(
            services.server,
            StreamableHTTPEndpoint(services),
            build_websocket_acceptor(services, path),
            LegacySSEEndpoint(services),
            TicketEndpoint(services),
        )
    return endpoints


class _MountedApplication:
    def __init__(self, application: Application, servers: Mapping[str, Server] | None) -> None:
        self._application = application
        self._accepts_websockets = not _is_django(application)
        endpoints = _build_configured() if servers is None else _build_given(servers)
        self._servers = [served.server for served in endpoints.values()]
        _warn_of_change_logs(self._servers)
        django_context = DjangoContext()
        self._well_known = WellKnownEndpoint()
        self._http = _EndpointRoutes(django_context.script_prefix)
        self._sockets = _EndpointRoutes(django_context.script_prefix)

        for path, (server, exchange, sockets, *_) in endpoints.items():
            if "http" in server.options.transports:
                self._http.add(path, _build_http_app(exchange, server, path, django_context))
            if "websocket" in server.options.transports:
                self._sockets.add(f"{path}/{WS}", _WebSocketEndpoint(sockets))
        # The path of a server takes precedence over the subpaths of other servers.
        for path, (server, _, _, legacy, tickets) in endpoints.items():
            if is_legacy_sse_enabled(server) and f"/{path}/{SSE}" not in self._http.static_routes:
                self._http.add(f"{path}/{SSE}", _build_http_app(legacy, server, f"{path}/{SSE}", django_context))
            if "websocket" in server.options.transports and f"/{path}/{TICKET}" not in self._http.static_routes:
                self._http.add(f"{path}/{TICKET}", _build_http_app(tickets, server, f"{path}/{TICKET}", django_context))
            if server.options.healthz and f"/{path}/{HEALTHZ}" not in self._http.static_routes:
                self._http.add(f"{path}/{HEALTHZ}", HealthEndpoint().app)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        kind = scope["type"]
        if kind == "http":
            endpoint = self._http.static_routes.get(scope["path"])
            if endpoint is not None:
                return await endpoint(scope, receive, send, None)

            match = self._http.find(scope)
            if match is not None:
                return await match[0](scope, receive, send, match[1])

            resource_path = get_well_known_path(_strip_root(self._http.get_root(scope), scope["path"]))
            if resource_path is not None and await self._well_known.serve(scope, resource_path, send):
                return None
        elif kind == "websocket":
            match = self._sockets.find(scope)
            if match is not None:
                return await match[0](scope, receive, send, match[1])
            if not self._accepts_websockets:
                return await deny_handshake(scope, send, TransportRefusal(404, body=NOT_FOUND_BODY))
        elif kind == "lifespan":
            return await self._lifespan(receive, send)

        await self._application(scope, receive, send)

    async def _lifespan(self, receive: Receive, send: Send) -> None:
        preparation = ListPreparation(self._servers)
        while True:
            message = await receive()
            if message["type"] == "lifespan.shutdown":
                await preparation.stop()
                await get_services().lifecycle.shutdown()
                await send({"type": "lifespan.shutdown.complete"})
                return
            try:
                await get_services().lifecycle.startup(self._servers)
            except RuntimeError as problem:
                logger.exception("Startup failed; this process cannot serve")
                await send({"type": "lifespan.startup.failed", "message": str(problem)})
                return
            await send({"type": "lifespan.startup.complete"})
            preparation.start()


def _warn_of_change_logs(servers: Iterable[Server]) -> None:
    """Log a warning if a package would log the changes of some servers without a user."""
    paths = [path for path, _ in middleware() if path in CHANGE_LOG_MIDDLEWARE]
    aliases = sorted(server.alias for server in servers if not server.around)
    if paths and aliases:
        logger.warning(
            "Changes may be logged without a user, because MIDDLEWARE does not run in the ASGI app. Name context "
            "managers in AROUND: servers=%s middleware=%s",
            ",".join(aliases),
            ",".join(paths),
        )


class _EndpointRoutes:
    """Endpoints by path."""

    def __init__(self, root: str) -> None:
        """Create an empty table; `root` overrides the scope's `root_path`."""
        self._root = root
        self.static_routes: dict[str, Endpoint] = {}
        self._dynamic_routes: list[tuple[RoutePattern, Endpoint]] = []

    def add(self, path: str, endpoint: Endpoint) -> None:
        """Serve `path`, with and without a slash at its end."""
        if "<" in path:
            self._dynamic_routes += [(RoutePattern(f"{path}{end}", is_endpoint=True), endpoint) for end in ("", "/")]
        else:
            self.static_routes[f"/{path}"] = self.static_routes[f"/{path}/"] = endpoint

    def get_root(self, scope: Scope) -> str:
        """Return the prefix of all paths of a request."""
        return self._root or scope.get("root_path", "")

    def find(self, scope: Scope) -> tuple[Endpoint, Mapping[str, Any] | None] | None:
        """Return the endpoint of a path with the captured values, or None."""
        path = scope["path"]
        endpoint = self.static_routes.get(path)
        if endpoint is not None:
            return endpoint, None

        root = self.get_root(scope)
        if not (root or self._dynamic_routes):
            return None

        path = _strip_root(root, path)
        endpoint = self.static_routes.get(path)
        if endpoint is not None:
            return endpoint, {}
        for pattern, endpoint in self._dynamic_routes:
            match = pattern.match(path.removeprefix("/"))
            if match:
                return endpoint, match[2]
        return None


class _WebSocketEndpoint:
    """WebSockets of a server as an endpoint.

    The captured values are passed as Channels' URLRouter does.
    """

    def __init__(self, sockets: WebSocketAcceptor) -> None:
        self._sockets = sockets

    async def __call__(self, scope: Scope, receive: Receive, send: Send, kwargs: Mapping[str, Any] | None) -> None:
        scope = {**scope, "url_route": {"args": (), "kwargs": dict(kwargs or {})}}
        await Consumer(acceptor=self._sockets)(scope, receive, send)


def _is_django(application: Any) -> bool:
    """Return True for Django's own ASGI handler.

    It raises ValueError for protocols other than HTTP. A handler for static files may wrap it, and passes all other
    requests on.
    """
    while isinstance(application, ASGIHandler) and hasattr(application, "application"):
        application = application.application
    return type(application) is ASGIHandler


def _build_http_app(side: HTTPEndpoint, server: Server, path: str, django_context: DjangoContext) -> StreamableHTTPApp:
    view = as_view(partial(_return_side, side))
    return StreamableHTTPApp(side, DjangoRequestFactory(view, alias=server.alias, route=path), django_context)


def _return_side(side: HTTPEndpoint) -> HTTPEndpoint:
    return side


def _strip_root(root: str, path: str) -> str:
    """Return the path without `root`, which some servers have removed already."""
    stripped = path.removeprefix(root.rstrip("/"))
    return stripped if stripped.startswith("/") else path
