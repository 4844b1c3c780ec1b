"""`mount`: which requests are the endpoints' and which the application's, and what the server's lifespan does."""

import contextlib
from collections.abc import AsyncIterator
from typing import Any

import pytest
from django.core.exceptions import ImproperlyConfigured
from django.test import override_settings

from mcp_django import Context, Server
from mcp_django.asgi import mount
from mcp_django.protocol import jsonrpc

VERSION = "2026-07-28"
CALL = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "tools/call",
    "params": {
        "name": "where",
        "arguments": {},
        "_meta": {
            "io.modelcontextprotocol/protocolVersion": VERSION,
            "io.modelcontextprotocol/clientCapabilities": {},
        },
    },
}
HEADERS = {
    b"host": b"127.0.0.1",
    b"content-type": b"application/json",
    b"mcp-protocol-version": VERSION.encode(),
    b"mcp-method": b"tools/call",
    b"mcp-name": b"where",
}


async def inner(scope: Any, receive: Any, send: Any) -> None:
    """The application beside the endpoints."""
    if scope["type"] == "websocket":
        await send({"type": "websocket.close"})
        return
    await send({"type": "http.response.start", "status": 299, "headers": []})
    await send({"type": "http.response.body", "body": scope["path"].encode()})


async def exchange(application: Any, scope: dict[str, Any], *messages: dict[str, Any]) -> list[dict[str, Any]]:
    """Everything that an application sends for a scope."""
    sent: list[dict[str, Any]] = []
    waiting = iter(messages)

    async def receive() -> dict[str, Any]:
        return next(waiting)

    async def send(message: Any) -> None:
        sent.append(message)

    await application(scope, receive, send)
    return sent


async def post(application: Any, path: str, root_path: str = "") -> tuple[int, Any]:
    """The status, and which server and what URL a tool saw; or the path that the inner application saw."""
    scope = {
        "type": "http",
        "method": "POST",
        "path": path,
        "root_path": root_path,
        "query_string": b"",
        "headers": list(HEADERS.items()),
        "client": ("127.0.0.1", 1),
    }
    start, *rest = await exchange(application, scope, {"type": "http.request", "body": jsonrpc.dumps(CALL)})
    body = b"".join(message["body"] for message in rest)
    if start["status"] != 200:
        return start["status"], body.decode()
    return 200, jsonrpc.loads(body)["result"]["structuredContent"]


def a_server(name: str, **given: Any) -> Server:
    """A server whose tool tells which one it is, and what the URL captured."""
    server = Server(name, **given)

    @server.tool
    async def where(ctx: Context) -> dict[str, Any]:
        return {"server": ctx.server.info.name, "kwargs": dict(ctx.kwargs), "path": ctx.request.path}

    return server


def saw(name: str, path: str, **kwargs: Any) -> tuple[int, dict[str, Any]]:
    return 200, {"server": name, "kwargs": kwargs, "path": path}


@pytest.mark.parametrize("path", ["/mcp", "/mcp/"])
async def test_a_path_works_with_and_without_a_slash(path: str) -> None:
    assert await post(mount(inner, servers={"mcp": a_server("own")}), path) == saw("own", path)


@pytest.mark.parametrize("written", ["mcp", "/mcp", "mcp/", "/mcp/"])
async def test_a_path_may_be_written_with_slashes(written: str) -> None:
    assert await post(mount(inner, servers={written: a_server("own")}), "/mcp") == saw("own", "/mcp")


@pytest.mark.parametrize("path", ["/", "", "/mcpx", "/mcp/x", "/x/mcp", "/MCP", "//mcp", "/mcp//"])
async def test_every_other_path_is_the_application_s(path: str) -> None:
    assert await post(mount(inner, servers={"mcp": a_server("own")}), path) == (299, path)


async def test_several_servers_are_told_apart_by_their_paths() -> None:
    application = mount(inner, servers={"mcp": a_server("one"), "mcp/two": a_server("two", alias="two")})
    assert await post(application, "/mcp") == saw("one", "/mcp")
    assert await post(application, "/mcp/two") == saw("two", "/mcp/two")
    assert await post(application, "/mcp/two/") == saw("two", "/mcp/two/")
    assert await post(application, "/mcp/three") == (299, "/mcp/three")


@pytest.mark.parametrize("slash", ["", "/"])
async def test_what_converters_capture_reaches_the_handler(slash: str) -> None:
    application = mount(inner, servers={"<slug:house>/rooms/<int:number>/mcp": a_server("own")})
    path = f"/main/rooms/7/mcp{slash}"
    assert await post(application, path) == saw("own", path, house="main", number=7)
    assert await post(application, f"/main/rooms/x/mcp{slash}") == (299, f"/main/rooms/x/mcp{slash}")


async def test_a_path_without_converters_wins_over_one_with() -> None:
    servers = {"<slug:house>/mcp": a_server("any", alias="any"), "main/mcp": a_server("main")}
    application = mount(inner, servers=servers)
    assert await post(application, "/main/mcp") == saw("main", "/main/mcp")
    assert await post(application, "/other/mcp") == saw("any", "/other/mcp", house="other")


@pytest.mark.parametrize("path", ["/app/mcp", "/app/mcp/", "/mcp"])
@pytest.mark.parametrize("root", ["/app", "/app/"])
async def test_a_root_path_is_left_off(path: str, root: str) -> None:
    application = mount(inner, servers={"mcp": a_server("own")})
    status, seen = await post(application, path, root)
    assert (status, seen["server"]) == (200, "own")


async def test_a_root_path_is_left_off_before_converters() -> None:
    application = mount(inner, servers={"<slug:house>/mcp": a_server("own")})
    assert await post(application, "/app/main/mcp", "/app") == saw("own", "/app/main/mcp", house="main")
    assert await post(application, "/app/mcp", "/app") == (299, "/app/mcp")


async def test_a_root_path_that_only_begins_alike_is_none() -> None:
    application = mount(inner, servers={"mcp": a_server("own"), "<slug:house>/mcp": a_server("any", alias="any")})
    assert await post(application, "/application/mcp", "/app") == saw("any", "/application/mcp", house="application")


async def test_websockets_are_the_application_s() -> None:
    application = mount(inner, servers={"mcp": a_server("own")})
    assert await exchange(application, {"type": "websocket", "path": "/mcp"}) == [{"type": "websocket.close"}]


STARTUP, SHUTDOWN = {"type": "lifespan.startup"}, {"type": "lifespan.shutdown"}
COMPLETE = [{"type": "lifespan.startup.complete"}, {"type": "lifespan.shutdown.complete"}]


async def test_lifespan_messages_are_answered_for_the_application() -> None:
    application = mount(inner, servers={"mcp": a_server("own")})
    assert await exchange(application, {"type": "lifespan"}, STARTUP, SHUTDOWN) == COMPLETE


async def test_shutdown_leaves_the_lifespans_that_calls_entered() -> None:
    log: list[str] = []

    def noting(name: str) -> Any:
        @contextlib.asynccontextmanager
        async def lifespan(server: Server) -> AsyncIterator[None]:
            log.append(f"{name} in")
            yield
            log.append(f"{name} out")

        return lifespan

    servers = {name: a_server(name, alias=name, lifespan=noting(name)) for name in ("one", "two")}
    application = mount(inner, servers=servers)
    await post(application, "/one")
    await post(application, "/one")
    assert log == ["one in"]
    assert await exchange(application, {"type": "lifespan"}, STARTUP, SHUTDOWN) == COMPLETE
    assert log == ["one in", "one out"]


async def test_a_lifespan_that_fails_at_shutdown_does_not_stop_the_shutdown(caplog: pytest.LogCaptureFixture) -> None:
    @contextlib.asynccontextmanager
    async def lifespan(server: Server) -> AsyncIterator[None]:
        yield
        raise RuntimeError("cannot close")

    application = mount(inner, servers={"mcp": a_server("own", lifespan=lifespan)})
    await post(application, "/mcp")
    assert await exchange(application, {"type": "lifespan"}, STARTUP, SHUTDOWN) == COMPLETE
    assert "cannot close" in caplog.text


SERVERS = {"default": {}, "staff": {"PATH": "staff/<int:floor>/mcp"}, "other": {}}


@override_settings(MCP={"AUTH": "none", "SERVERS": SERVERS})
async def test_without_servers_those_of_the_setting_are_served_at_their_paths() -> None:
    application = mount(inner)
    for path in ("/mcp", "/mcp/", "/staff/3/mcp", "/mcp/other", "/mcp/other/"):
        status, _ = await post(application, path)
        assert status in (400, 404), path  # served: there is no such tool
    for path in ("/mcp/staff", "/staff/x/mcp", "/mcp/default"):
        assert await post(application, path) == (299, path)


@override_settings(MCP={"AUTH": "none", "SERVERS": SERVERS})
async def test_servers_of_one_s_own_are_served_instead_of_those_of_the_setting() -> None:
    application = mount(inner, servers={"own": a_server("own")})
    assert await post(application, "/own") == saw("own", "/own")
    assert await post(application, "/mcp") == (299, "/mcp")


async def test_servers_that_share_an_alias_are_not_mounted_together() -> None:
    with pytest.raises(ImproperlyConfigured, match="aliases of their own"):
        mount(inner, servers={"mcp": a_server("one"), "mcp/two": a_server("two")})
