"""Paths of sockets: `mount` and `routing.websocket_urlpatterns`, and the request of a handshake."""

from collections.abc import Iterator
from typing import Any

import pytest
from channels.routing import ProtocolTypeRouter, URLRouter
from django.contrib.staticfiles.handlers import ASGIStaticFilesHandler
from django.core.asgi import get_asgi_application
from django.test import override_settings
from django.urls import path
from django.utils.translation import gettext

from mcp_django import Context, Server, tool
from mcp_django.asgi import mount
from mcp_django.routing import websocket_urlpatterns
from mcp_django.transports.websocket import Consumer
from tests.repository.pages import ROOT, python_blocks
from tests.transports.sockets import META, Socket

SERVER_INFO = META + "serverInfo"
TENANTS = {"PATH": "mcp/of/<slug:tenant>/<int:floor>"}
SERVERS: dict[str, Any] = {
    "default": {"NAME": "first"},
    "socket_tenants": TENANTS,
    "socket_other": {"NAME": "another"},
    "posts": {"TRANSPORTS": ["http"]},
}


@tool(server="socket_tenants")
@tool(server="socket_other")
def about(ctx: Context) -> dict[str, Any]:
    """Return the name of the server, and the request of the socket."""
    request = ctx.request
    return {
        "server": ctx.server.info.name,
        "kwargs": dict(ctx.url_kwargs),
        "path": request.path,
        "method": request.method,
        "address": request.build_absolute_uri(),
        "secure": request.is_secure(),
        "query": request.GET.dict(),
        "matched": dict(request.resolver_match.kwargs),
        "route": request.resolver_match.route,
        "monday": gettext("Monday"),
    }


@pytest.fixture(autouse=True)
def _served(db: None) -> Iterator[None]:
    with override_settings(MCP={"AUTH": "none", "SERVERS": SERVERS}):
        yield


async def inner(scope: Any, receive: Any, send: Any) -> None:
    """The application beside the endpoints."""
    assert scope["type"] == "websocket"
    await send({"type": "websocket.accept", "subprotocol": f"inner {scope['path']}"})


def a_server(name: str) -> Server:
    server = Server(name, alias=name)
    server.tool(about)
    return server


async def describe_socket(app: Any, path: str, headers: Any = (), **scope: Any) -> dict[str, Any]:
    """Open a socket; return the result of its tool."""
    socket = Socket(app, path, headers, **scope)
    await socket.accepted()
    found: dict[str, Any] = await socket.value("about")
    socket.leave()
    await socket.finish()
    return found


def of_the_setting() -> list[Any]:
    return [mount(inner), URLRouter(websocket_urlpatterns)]


async def test_every_server_of_the_setting_has_its_sockets(subtests: pytest.Subtests) -> None:
    for slash in ["", "/"]:
        for door in [0, 1]:
            with subtests.test(slash=slash, door=door):
                app = of_the_setting()[door]
                first = Socket(app, f"/mcp/ws{slash}")
                await first.accepted()
                assert (await first.request("server/discover"))["result"]["_meta"][SERVER_INFO]["name"] == "first"
                first.leave()
                await first.finish()
                second = await describe_socket(app, f"/mcp/socket_other/ws{slash}")
                assert (second["server"], second["kwargs"], second["path"]) == (
                    "another",
                    {},
                    f"/mcp/socket_other/ws{slash}",
                )
                third = await describe_socket(app, f"/mcp/of/acme/3/ws{slash}")
                assert third["server"] == "socket_tenants"
                assert third["kwargs"] == third["matched"] == {"tenant": "acme", "floor": 3}


async def test_a_root_path_is_removed(subtests: pytest.Subtests) -> None:
    for door in [0, 1]:
        with subtests.test(door=door):
            app = of_the_setting()[door]
            assert (await describe_socket(app, "/api/mcp/socket_other/ws", root_path="/api"))[
                "path"
            ] == "/api/mcp/socket_other/ws"
            assert (await describe_socket(app, "/api/mcp/of/acme/3/ws", root_path="/api"))["kwargs"] == {
                "tenant": "acme",
                "floor": 3,
            }


async def test_servers_outside_the_settings_have_sockets_at_their_paths() -> None:
    app = mount(inner, servers={"one": a_server("one"), "/two/<int:number>/": a_server("two")})
    assert (await describe_socket(app, "/one/ws"))["server"] == "one"
    two = await describe_socket(app, "/two/5/ws/")
    assert (two["server"], two["kwargs"], two["route"]) == ("two", {"number": 5}, "two/<int:number>/ws")
    assert await Socket(app, "/mcp/ws").accepted() == "inner /mcp/ws"


async def test_every_other_path_belongs_to_the_application(subtests: pytest.Subtests) -> None:
    for where in ["/", "/mcp", "/mcp/ws2", "/mcp/posts/ws", "/mcp/ws//", "/mcp/of/acme/three/ws"]:
        with subtests.test(where=where):
            assert await Socket(mount(inner), where).accepted() == f"inner {where}"


async def test_in_front_of_django_every_other_path_is_refused(subtests: pytest.Subtests) -> None:
    for extensions in [{"websocket.http.response": {}}, {}]:
        with subtests.test(extensions=extensions):
            for application in (get_asgi_application(), ASGIStaticFilesHandler(get_asgi_application())):
                denial = await Socket(mount(application), "/elsewhere", extensions=extensions).denied()
                assert denial.status == (404 if extensions else 403)


async def test_an_application_behind_the_static_files_handler_gets_its_sockets() -> None:
    app = mount(ASGIStaticFilesHandler(ProtocolTypeRouter({"websocket": inner})))
    assert await Socket(app, "/elsewhere").accepted() == "inner /elsewhere"


async def test_the_examples_of_the_documentation_serve_sockets(subtests: pytest.Subtests) -> None:
    for example, where in [(0, "/mcp/ws"), (1, "/mcp/ws/"), (1, "/assistant/ws")]:
        with subtests.test(example=example, where=where):
            found: dict[str, Any] = {}
            exec(python_blocks(ROOT / "docs" / "run" / "websocket.md")[example], found)
            socket = Socket(found["application"], where)
            await socket.accepted()
            socket.leave()
            await socket.finish()


async def test_a_custom_route_serves_a_server() -> None:
    app = URLRouter([path("chat/<slug:house>", Consumer.as_asgi(server="socket_other"))])
    found = await describe_socket(app, "/chat/main")
    assert (found["server"], found["kwargs"], found["path"]) == ("another", {"house": "main"}, "/chat/main")


async def test_a_custom_route_serves_no_server_without_the_transport() -> None:
    consumer: Any = Consumer.as_asgi(server="posts")
    denial = await Socket(URLRouter([path("assistant", consumer)]), "/assistant").denied()
    assert denial.status == 404


def test_the_patterns_follow_the_setting() -> None:
    def routes() -> list[str]:
        return [str(pattern.pattern) for pattern in websocket_urlpatterns]

    assert routes()[:2] == ["mcp/ws", "mcp/ws/"]
    assert not any("posts" in route for route in routes())
    with override_settings(MCP={"AUTH": "none", "SERVERS": {"default": {"PATH": "elsewhere"}}}):
        assert routes() == ["elsewhere/ws", "elsewhere/ws/"]
    assert "mcp/socket_other/ws" in routes()


async def test_the_request_of_a_handler_is_the_handshake(settings: Any) -> None:
    settings.ALLOWED_HOSTS = ["127.0.0.1"]
    found = await describe_socket(mount(inner), "/mcp/socket_other/ws", query_string=b"a=1", scheme="ws")
    assert (found["method"], found["secure"], found["query"]) == ("GET", False, {"a": "1"})
    assert found["address"] == "http://127.0.0.1:8000/mcp/socket_other/ws?a=1"
    found = await describe_socket(mount(inner), "/mcp/socket_other/ws", scheme="wss")
    assert (found["secure"], found["address"]) == (True, "https://127.0.0.1:8000/mcp/socket_other/ws")


async def test_handlers_run_in_the_language_of_the_handshake(settings: Any) -> None:
    settings.MIDDLEWARE = ["django.middleware.locale.LocaleMiddleware"]
    app = mount(inner)
    assert (await describe_socket(app, "/mcp/socket_other/ws", {"accept-language": "de"}))["monday"] == "Montag"
    assert (await describe_socket(app, "/mcp/socket_other/ws"))["monday"] == "Monday"
