"""`mount`: requests of endpoints and of the application, and the lifespan of servers."""

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.core.exceptions import ImproperlyConfigured
from django.test import override_settings

from mcp_django import Context, Server
from mcp_django.asgi import mount
from mcp_django.protocol import jsonrpc
from mcp_django.server.options import ServerOptions
from tests.support.waiting import WAIT_SECONDS, eventually

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
    """Return the status, and the server and URL that a tool saw, or the path that the inner application saw."""
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


async def request(application: Any, method: str, path: str, message: Any = None) -> tuple[Any, bytes]:
    """The head and the body of an answer."""
    scope = {
        "type": "http",
        "method": method,
        "path": path,
        "root_path": "",
        "query_string": b"",
        "headers": list(HEADERS.items()) if message else [],
        "client": ("10.0.0.1", 1) if message is None else ("127.0.0.1", 1),
    }
    body = {"type": "http.request", "body": b"" if message is None else jsonrpc.dumps(message)}
    start, *rest = await exchange(application, scope, body)
    return start, b"".join(message["body"] for message in rest)


def a_server(name: str, **given: Any) -> Server:
    """A server whose tool returns its name and the captured values of the URL."""
    server = Server(name, **given)

    @server.tool
    async def where(ctx: Context) -> dict[str, Any]:
        return {"server": ctx.server.info.name, "kwargs": dict(ctx.url_kwargs), "path": ctx.request.path}

    return server


def saw(name: str, path: str, **kwargs: Any) -> tuple[int, dict[str, Any]]:
    return 200, {"server": name, "kwargs": kwargs, "path": path}


def test_paths_are_served_with_and_without_slashes(subtests: pytest.Subtests) -> None:
    async def check(path: str) -> None:
        assert await post(mount(inner, servers={"mcp": a_server("own")}), path) == saw("own", path)

    for path in ("/mcp", "/mcp/"):
        with subtests.test(path=path):
            async_to_sync(check)(path)

    async def check(written: str) -> None:
        assert await post(mount(inner, servers={written: a_server("own")}), "/mcp") == saw("own", "/mcp")

    for written in ("mcp", "/mcp", "mcp/", "/mcp/"):
        with subtests.test(written=written):
            async_to_sync(check)(written)

    async def check(path: str) -> None:
        assert await post(mount(inner, servers={"mcp": a_server("own")}), path) == (299, path)

    for path in ("/", "", "/mcpx", "/mcp/x", "/x/mcp", "/MCP", "//mcp", "/mcp//"):
        with subtests.test(path=path):
            async_to_sync(check)(path)


async def test_several_servers_are_distinguished_by_their_paths() -> None:
    application = mount(inner, servers={"mcp": a_server("one"), "mcp/two": a_server("two", alias="two")})
    assert await post(application, "/mcp") == saw("one", "/mcp")
    assert await post(application, "/mcp/two") == saw("two", "/mcp/two")
    assert await post(application, "/mcp/two/") == saw("two", "/mcp/two/")
    assert await post(application, "/mcp/three") == (299, "/mcp/three")


def test_captured_values_of_converters_reach_the_handler(subtests: pytest.Subtests) -> None:
    async def check(slash: str) -> None:
        application = mount(inner, servers={"<slug:house>/rooms/<int:number>/mcp": a_server("own")})
        path = f"/main/rooms/7/mcp{slash}"
        assert await post(application, path) == saw("own", path, house="main", number=7)
        assert await post(application, f"/main/rooms/x/mcp{slash}") == (299, f"/main/rooms/x/mcp{slash}")

    for slash in ("", "/"):
        with subtests.test(slash=slash):
            async_to_sync(check)(slash)


async def test_root_paths_are_left_off_before_converters() -> None:
    servers = {"<slug:house>/mcp": a_server("any", alias="any"), "main/mcp": a_server("main")}
    application = mount(inner, servers=servers)
    assert await post(application, "/main/mcp") == saw("main", "/main/mcp")
    assert await post(application, "/other/mcp") == saw("any", "/other/mcp", house="other")

    application = mount(inner, servers={"<slug:house>/mcp": a_server("own")})
    assert await post(application, "/app/main/mcp", "/app") == saw("own", "/app/main/mcp", house="main")
    assert await post(application, "/app/mcp", "/app") == (299, "/app/mcp")

    application = mount(inner, servers={"mcp": a_server("own"), "<slug:house>/mcp": a_server("any", alias="any")})
    assert await post(application, "/application/mcp", "/app") == saw("any", "/application/mcp", house="application")


def test_a_root_path_is_left_off(subtests: pytest.Subtests) -> None:
    async def check(path: str, root: str) -> None:
        application = mount(inner, servers={"mcp": a_server("own")})
        status, seen = await post(application, path, root)
        assert (status, seen["server"]) == (200, "own")

    for path in ("/app/mcp", "/app/mcp/", "/mcp"):
        for root in ("/app", "/app/"):
            with subtests.test(path=path, root=root):
                async_to_sync(check)(path, root)


async def test_websockets_and_lifespans_reach_the_application() -> None:
    application = mount(inner, servers={"mcp": a_server("own")})
    assert await exchange(application, {"type": "websocket", "path": "/mcp"}) == [{"type": "websocket.close"}]

    application = mount(inner, servers={"mcp": a_server("own")})
    assert await exchange(application, {"type": "lifespan"}, STARTUP, SHUTDOWN) == COMPLETE


STARTUP, SHUTDOWN = {"type": "lifespan.startup"}, {"type": "lifespan.shutdown"}
COMPLETE = [{"type": "lifespan.startup.complete"}, {"type": "lifespan.shutdown.complete"}]


def noting(log: list[str], name: str) -> Any:
    @contextlib.asynccontextmanager
    async def lifespan(server: Server) -> AsyncIterator[None]:
        log.append(f"{name} in")
        yield
        log.append(f"{name} out")

    return lifespan


async def test_lifespans_are_entered_at_startup_and_left_at_shutdown() -> None:
    log: list[str] = []
    servers = {name: a_server(name, alias=name, lifespan=noting(log, name)) for name in ("one", "two")}
    application = mount(inner, servers=servers)
    seen: list[list[str]] = []
    messages = iter([STARTUP, SHUTDOWN])

    async def receive() -> Any:
        seen.append(list(log))
        return next(messages)

    async def send(message: Any) -> None:
        """The assertions are about the log."""

    await application({"type": "lifespan"}, receive, send)
    assert seen == [[], ["one in", "two in"]]
    assert sorted(log[2:]) == ["one out", "two out"]


async def test_lists_are_prepared_after_startup() -> None:
    server = a_server("own")
    application = mount(inner, servers={"mcp": server})
    messages: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
    messages.put_nowait(STARTUP)

    async def send(message: Any) -> None:
        """The assertions are about the list."""

    lifespan = asyncio.ensure_future(application({"type": "lifespan"}, messages.get, send))
    await eventually(lambda: all("wire" in vars(tool) for tool in server.registry.tools))
    messages.put_nowait(SHUTDOWN)
    await lifespan


async def test_without_startup_the_first_call_enters_the_lifespan_and_shutdown_leaves_it() -> None:
    log: list[str] = []
    application = mount(inner, servers={"one": a_server("one", lifespan=noting(log, "one"))})
    await post(application, "/one")
    await post(application, "/one")
    assert log == ["one in"]
    assert await exchange(application, {"type": "lifespan"}, SHUTDOWN) == COMPLETE[1:]
    assert log == ["one in", "one out"]


async def test_a_lifespan_that_fails_at_startup_stops_the_process_with_the_reason(
    caplog: pytest.LogCaptureFixture,
) -> None:
    @contextlib.asynccontextmanager
    async def lifespan(server: Server) -> AsyncIterator[None]:
        raise OSError("no such warehouse")
        yield

    log: list[str] = []
    servers = {
        "good": a_server("good", alias="good", lifespan=noting(log, "good")),
        "bad": a_server("bad", alias="bad", lifespan=lifespan),
    }
    application = mount(inner, servers=servers)
    (failed,) = await exchange(application, {"type": "lifespan"}, STARTUP)
    assert failed["type"] == "lifespan.startup.failed"
    assert '"bad" failed at startup: OSError: no such warehouse' in failed["message"]
    assert log == ["good in", "good out"]
    assert "Traceback" in caplog.text


async def test_new_calls_are_refused_after_shutdown_began_and_taken_after_another_startup() -> None:
    application = mount(inner, servers={"mcp": a_server("own")})
    await exchange(application, {"type": "lifespan"}, STARTUP, SHUTDOWN)
    start, body = await request(application, "POST", "/mcp", CALL)
    assert start["status"] == 503
    assert (b"retry-after", b"1") in start["headers"]
    assert jsonrpc.loads(body)["id"] == 1
    assert jsonrpc.loads(body)["error"] == {"code": -32603, "message": "The server is shutting down; try again later"}
    with pytest.raises(RuntimeError):  # there is no third message
        await exchange(application, {"type": "lifespan"}, STARTUP)
    assert (await post(application, "/mcp"))[0] == 200


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
async def test_given_servers_replace_the_servers_of_the_setting() -> None:
    application = mount(inner, servers={"own": a_server("own")})
    assert await post(application, "/own") == saw("own", "/own")
    assert await post(application, "/mcp") == (299, "/mcp")


async def test_servers_that_share_an_alias_are_not_mounted_together() -> None:
    with pytest.raises(ImproperlyConfigured, match="have the same alias"):
        mount(inner, servers={"mcp": a_server("one"), "mcp/two": a_server("two")})


def test_the_threads_of_a_loop_end_when_it_shuts_down() -> None:
    server = Server("own")

    @server.tool(name="where")
    def in_a_thread() -> dict[str, Any]:
        return {"server": "own", "kwargs": {}, "path": threading.current_thread().name}

    async def main() -> None:
        application = mount(inner, servers={"mcp": server})
        others = threads()
        await post(application, "/mcp")
        (thread,) = threads() - others
        await exchange(application, {"type": "lifespan"}, SHUTDOWN)
        thread.join(WAIT_SECONDS)
        assert not thread.is_alive()

    asyncio.run(main())


def threads() -> set[threading.Thread]:
    return {thread for thread in threading.enumerate() if thread.name.startswith("mcp-thread")}


HEALTHY = ServerOptions(healthz=True)


@pytest.mark.django_db
def test_health_needs_no_credential_and_no_host(subtests: pytest.Subtests) -> None:
    async def check(where: str, path: str) -> None:
        application = mount(inner, servers={where: a_server("own", options=HEALTHY)})
        start, body = await request(application, "GET", path)
        assert (start["status"], body) == (200, b'{"status":"ok"}')
        assert dict(start["headers"]) == {
            b"content-type": b"application/json",
            b"content-length": b"15",
            b"cache-control": b"no-store",
        }

    for path in ("/main/mcp/healthz", "/main/mcp/healthz/"):
        for where in ("main/mcp", "<slug:tenant>/mcp"):
            with subtests.test(path=path, where=where):
                async_to_sync(check)(where, path)


@pytest.mark.django_db
async def test_health_is_served_if_enabled() -> None:
    application = mount(inner, servers={"mcp": a_server("own", options=HEALTHY)})
    start, body = await request(application, "HEAD", "/mcp/healthz")
    assert (start["status"], body, dict(start["headers"])[b"content-length"]) == (200, b"", b"15")
    start, body = await request(application, "POST", "/mcp/healthz", CALL)
    assert (start["status"], dict(start["headers"])[b"allow"]) == (405, b"GET, HEAD")

    application = mount(inner, servers={"mcp": a_server("own")})
    assert (await request(application, "GET", "/mcp/healthz"))[0]["status"] == 299

    servers = {"mcp": a_server("own", options=HEALTHY), "mcp/healthz": a_server("odd", alias="odd")}
    assert await post(mount(inner, servers=servers), "/mcp/healthz") == saw("odd", "/mcp/healthz")


async def test_health_reports_the_shutdown() -> None:
    application = mount(inner, servers={"mcp": a_server("own", options=HEALTHY)})
    await exchange(application, {"type": "lifespan"}, STARTUP, SHUTDOWN)
    start, body = await request(application, "GET", "/mcp/healthz")
    assert (start["status"], body) == (503, b'{"status":"draining"}')
