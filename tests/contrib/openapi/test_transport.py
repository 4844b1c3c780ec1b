"""Requests over HTTP to a real server."""

import asyncio
import contextlib
import gzip
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

import httpx
import pytest

from mcp_django import Context
from mcp_django.contrib.openapi import OpenAPIToolset, Route
from tests.contrib.openapi.pets import Api, document, operation, parameter, peer
from tests.server.client import PipelineClient, make_principal, make_server
from tests.support.clock import Clock

Respond = Callable[["Exchange"], Awaitable[None]]
SOURCE = document(
    {
        "/x": {"get": operation(operationId="get", responses={}), "post": operation(operationId="post", responses={})},
        "/y/{id}": {"get": operation(operationId="one", responses={}, parameters=[parameter("id", "path")])},
    }
)


@dataclass
class Exchange:
    """One request, and a writer for its response."""

    line: str
    headers: str
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    def answer(self, body: bytes = b"ok", status: str = "200 OK", **headers: str) -> None:
        lines = [f"HTTP/1.1 {status}", f"Content-Length: {len(body)}", "Content-Type: text/plain"]
        lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
        self.writer.write("\r\n".join([*lines, "", ""]).encode() + body)


@dataclass
class Service:
    """A server, and the requests that it received."""

    url: str = ""
    seen: list[Exchange] = field(default_factory=list)
    connections: int = 0


@contextlib.asynccontextmanager
async def serving(respond: Respond) -> AsyncIterator[Service]:
    service = Service()
    writers: list[asyncio.StreamWriter] = []

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        service.connections += 1
        writers.append(writer)
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
                line, _, headers = head.partition("\r\n")
                exchange = Exchange(line, headers, reader, writer)
                service.seen.append(exchange)
                await respond(exchange)
                await writer.drain()
        writer.close()

    server = await asyncio.start_server(connected, "127.0.0.1", 0)
    service.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/api"
    try:
        yield service
    finally:
        server.close()
        for writer in writers:
            writer.close()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()


@contextlib.asynccontextmanager
async def client_of(service: Service, **options: Any) -> AsyncIterator[PipelineClient]:
    """A client whose server's lifespan is entered."""
    made = OpenAPIToolset(SOURCE, base_url=service.url, **options)
    server = make_server(toolsets=[made])
    async with made.lifespan():
        yield PipelineClient(server)


async def test_requests_go_below_the_base_url_and_share_connections() -> None:
    async def respond(exchange: Exchange) -> None:
        exchange.answer(exchange.line.encode())

    async with serving(respond) as service, client_of(service) as client:
        assert await client.text("get") == "GET /api/x HTTP/1.1"
        assert await client.text("one", id="a b/ü") == "GET /api/y/a%20b%2F%C3%BC HTTP/1.1"
        assert service.connections == 1
        assert f"Host: {service.url.split('/')[2]}" in service.seen[0].headers


async def test_cookies_of_a_response_are_not_sent_later() -> None:
    async def respond(exchange: Exchange) -> None:
        exchange.answer(Set_Cookie="sid=of-somebody; Path=/")

    def make() -> httpx.AsyncClient:
        return httpx.AsyncClient(cookies={"own": "1"})

    for options in ({}, {"http_client": make}, {"credentials": httpx.BasicAuth("a", "b")}):
        async with serving(respond) as service, client_of(service, **options) as client:
            await client.text("get")
            await client.text("get")
        assert "of-somebody" not in service.seen[1].headers


async def test_simultaneous_callers_have_their_own_credentials() -> None:
    async def respond(exchange: Exchange) -> None:
        await asyncio.sleep(0)
        exchange.answer(exchange.headers.encode(), Set_Cookie="sid=of-somebody")

    schemes = {"key": {"type": "http", "scheme": "bearer"}}
    source = {**SOURCE, "components": {"securitySchemes": schemes}, "security": [{"key": []}]}

    async def key(ctx: Context) -> str:
        await asyncio.sleep(0)
        return f"key-of-{ctx.principal.subject}-"

    async with serving(respond) as service:
        made = OpenAPIToolset(source, base_url=service.url, credentials=key)
        server = make_server(toolsets=[made])
        async with made.lifespan():
            names = [f"user{number % 7}" for number in range(60)]
            calls = [PipelineClient(server, make_principal(name=name)).text("get") for name in names]
            for name, text in zip(names, await asyncio.gather(*calls), strict=True):
                assert f"Bearer key-of-{name}-" in text
                assert text.count("key-of") == 1
                assert "of-somebody" not in text


async def test_a_redirect_is_not_followed() -> None:
    async def elsewhere(exchange: Exchange) -> None:
        exchange.answer()

    async with serving(elsewhere) as other:

        async def respond(exchange: Exchange) -> None:
            exchange.answer(b"", "307 Temporary Redirect", Location=f"{other.url}/x")

        for options in ({}, {"redirects": 3}, {"http_client": lambda: httpx.AsyncClient(follow_redirects=True)}):
            async with serving(respond) as service, client_of(service, **options) as client:
                assert (await client.error("get")).startswith("307 Temporary Redirect")
                assert (await client.error("post")).startswith("307")
        assert other.seen == []


async def test_a_redirect_on_the_same_origin_may_be_followed() -> None:
    async def respond(exchange: Exchange) -> None:
        if "/api/x" in exchange.line:
            exchange.answer(b"", "302 Found", Location="/api/z")
        else:
            exchange.answer(exchange.headers.encode())

    async with serving(respond) as service, client_of(service, redirects=1, headers={"X-Key": "k"}) as client:
        assert "X-Key: k" in await client.text("get")
        assert service.seen[1].line == "GET /api/z HTTP/1.1"


async def test_a_cancelled_call_ends_its_request() -> None:
    asked, left = asyncio.Event(), asyncio.Event()

    async def respond(exchange: Exchange) -> None:
        asked.set()
        assert await exchange.reader.read(1) == b""
        left.set()

    async with serving(respond) as service, client_of(service) as client:
        task = asyncio.ensure_future(client.call("get"))
        await asked.wait()
        task.cancel()
        await left.wait()
        with contextlib.suppress(asyncio.CancelledError):
            await task


async def test_a_silent_server_is_given_up_at_the_timeout(clock: Clock) -> None:
    begun, over = asyncio.Event(), asyncio.Event()

    async def respond(exchange: Exchange) -> None:
        exchange.writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nx")
        begun.set()
        await over.wait()

    async def error(client: Any, seconds: float) -> str:
        call = asyncio.create_task(client.error("get"))
        await begun.wait()
        begun.clear()
        await clock.advance(seconds)
        return str(await call)

    async with serving(respond) as service, client_of(service, timeout=5) as client:
        assert await error(client, 5) == "The server did not answer within 5 seconds"
    routes = [Route("GET /x", timeout=2)]
    async with serving(respond) as service, client_of(service, timeout=60, routes=routes) as client:
        assert "2 seconds" in await error(client, 2)
        over.set()


async def test_a_compression_bomb_is_not_decompressed() -> None:
    async def respond(exchange: Exchange) -> None:
        exchange.answer(gzip.compress(b"x" * 50_000_000), Content_Encoding="gzip")

    async with serving(respond) as service, client_of(service, max_size=10_000) as client:
        assert "larger than 10000 bytes" in await client.error("get")


async def test_gzip_is_decoded_and_other_encodings_are_refused() -> None:
    async def respond(exchange: Exchange) -> None:
        if len(service.seen) == 1:
            exchange.answer(gzip.compress(b"hello"), Content_Encoding="gzip")
        else:
            exchange.answer(b"hello", Content_Encoding="br")

    async with serving(respond) as service, client_of(service) as client:
        assert await client.text("get") == "hello"
        assert "unsupported encoding" in await client.error("get")


async def test_an_unreachable_server_is_reported_without_its_address() -> None:
    async with serving(lambda exchange: asyncio.sleep(0)) as service:
        pass
    async with client_of(service) as client:
        assert await client.error("get") == "The server cannot be reached"


async def test_an_invalid_http_response_is_reported() -> None:
    async def respond(exchange: Exchange) -> None:
        exchange.writer.write(b"nonsense\r\n\r\n")

    async with serving(respond) as service, client_of(service) as client:
        assert await client.error("get") == "The server cannot be reached"


def test_each_loop_has_connections_of_its_own() -> None:
    made: list[httpx.AsyncClient] = []
    api = Api()

    def make() -> httpx.AsyncClient:
        made.append(api.client())
        return made[-1]

    client = peer(SOURCE, http_client=make)
    (toolset,) = client.server.registry.toolsets

    async def work() -> None:
        async with toolset.lifespan():
            await client.call("get")
            await client.call("get")

    asyncio.run(work())
    asyncio.run(work())
    assert len(made) == 2
    assert all(one.is_closed for one in made)


async def test_a_client_of_the_project_is_not_closed() -> None:
    own = Api().client()
    client = peer(SOURCE, http_client=own)
    (toolset,) = client.server.registry.toolsets
    async with toolset.lifespan():
        await client.call("get")
    assert not own.is_closed
    await own.aclose()


async def test_digest_authentication_is_supported() -> None:
    async def respond(exchange: Exchange) -> None:
        if "Authorization: Digest" in exchange.headers:
            exchange.answer(b"welcome")
        else:
            challenge = 'Digest realm="r", nonce="n", qop="auth", algorithm=MD5'
            exchange.answer(b"", "401 Unauthorized", WWW_Authenticate=challenge)

    async with serving(respond) as service, client_of(service, credentials=httpx.DigestAuth("a", "b")) as client:
        assert await client.text("get") == "welcome"


@pytest.mark.parametrize("proxy", ["HTTP_PROXY", "ALL_PROXY"])
async def test_proxy_variables_of_the_environment_are_ignored(proxy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async def respond(exchange: Exchange) -> None:
        exchange.answer()

    monkeypatch.setenv(proxy, "http://127.0.0.1:9")
    async with serving(respond) as service, client_of(service) as client:
        assert await client.text("get") == "ok"
