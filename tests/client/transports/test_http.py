"""Streamable HTTP against servers that misbehave: a failure of one call is an error of that call only."""

import asyncio
import gzip
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import httpx2
import pytest
from mcp import MCPError
from mcp.shared.message import SessionMessage
from mcp_types import CONNECTION_CLOSED, INTERNAL_ERROR, JSONRPCError, JSONRPCNotification, JSONRPCRequest

from mcp_django.client import Client
from mcp_django.client.errors import ClientConnectionError
from mcp_django.client.sdk_compat import is_lost, is_terminated
from mcp_django.client.transports import http
from mcp_django.client.transports.targets import StreamableHTTP
from tests.client.listeners import Exchange, Served, exchanges, listening
from tests.support.clock import Clock
from tests.support.waiting import eventually

SECRET = {"Authorization": "Bearer s3cret"}


class Wire:
    """The streams of a connection, for one call after the other."""

    def __init__(self, reader: Any, writer: Any) -> None:
        self.reader, self.writer = reader, writer

    async def request(self, method: str, number: int = 1) -> Any:
        """Send a request; return its result, or the data of its error."""
        await self.writer.send(SessionMessage(JSONRPCRequest(jsonrpc="2.0", id=number, method=method)))
        item = await self.reader.receive()
        assert isinstance(item, SessionMessage), item
        assert item.message.id == number
        return item.message.error if isinstance(item.message, JSONRPCError) else item.message.result

    async def notify(self, method: str) -> None:
        await self.writer.send(SessionMessage(JSONRPCNotification(jsonrpc="2.0", method=method)))


async def fine(exchange: Exchange) -> None:
    await exchange.result(fine=True)


@asynccontextmanager
async def connected(served: Served | Mapping[str, Served], **options: Any) -> AsyncIterator[Wire]:
    """Connect to a server; `fine` is answered well unless the test sets another function."""
    served = served if callable(served) else {"fine": fine, **served}
    async with listening(exchanges(served)) as port:
        target = StreamableHTTP(f"http://127.0.0.1:{port}/mcp", environment_proxies=False, **options)
        async with target.open() as (reader, writer):
            yield Wire(reader, writer)


async def still_fine(wire: Wire) -> None:
    assert await wire.request("fine", 99) == {"fine": True}


async def test_headers_go_with_every_request() -> None:
    seen: list[tuple[str, str, str]] = []

    async def note(exchange: Exchange) -> None:
        seen.append((exchange.method, exchange.headers["authorization"], exchange.headers["x-tenant"]))
        if exchange.method != "POST":
            return await exchange.answer(405)
        if "id" not in exchange.message:
            return await exchange.answer(202)
        body = json.dumps({"jsonrpc": "2.0", "id": exchange.message["id"], "result": {}})
        await exchange.answer(200, body, content_type="application/json", mcp_session_id="s1")

    async with connected(note, headers={**SECRET, "X-Tenant": "a"}) as wire:
        await wire.request("initialize")
        await wire.notify("notifications/initialized")
        await wire.request("ping", 2)
        await eventually(lambda: len(seen) == 4)  # the stream of the session opens at the same time
    assert {sent[1:] for sent in seen} == {("Bearer s3cret", "a")}
    assert [sent[0] for sent in seen].count("DELETE") == 1


async def test_auth_is_asked_for_each_request() -> None:
    class Counting(httpx2.Auth):
        count = 0

        def auth_flow(self, request: httpx2.Request) -> Any:
            self.count += 1
            request.headers["Authorization"] = f"Bearer {self.count}"
            yield request

    async def report(exchange: Exchange) -> None:
        await exchange.result(sent=exchange.headers["authorization"])

    async with connected(report, auth=Counting()) as wire:
        assert [await wire.request("fine", number) for number in (1, 2)] == [{"sent": "Bearer 1"}, {"sent": "Bearer 2"}]


async def test_an_answer_larger_than_allowed_is_an_error_of_its_call() -> None:
    async def much(exchange: Exchange) -> None:
        await exchange.result(text="x" * 5000)

    async def endless(exchange: Exchange) -> None:
        await exchange.begin(200, content_type="application/json")
        while True:
            await exchange.write(b"x" * 65536)

    async def event(exchange: Exchange) -> None:
        await exchange.begin(200, content_type="text/event-stream")
        await exchange.write(exchange.event(result={"text": "x" * 5000}))

    async with connected({"much": much, "endless": endless, "event": event}, max_message_size=2000) as wire:
        for method in ("much", "endless"):
            error = await wire.request(method)
            assert (error.code, error.message) == (INTERNAL_ERROR, "The response is larger than 2000 bytes")
        assert (await wire.request("event")).code == CONNECTION_CLOSED
        await still_fine(wire)


async def test_the_size_of_a_compressed_answer_is_its_decompressed_size() -> None:
    async def bomb(exchange: Exchange) -> None:
        body = gzip.compress(b"x" * 10_000_000)
        await exchange.answer(200, body, content_type="application/json", content_encoding="gzip")

    async def good(exchange: Exchange) -> None:
        body = json.dumps({"jsonrpc": "2.0", "id": 1, "result": {"packed": True}}).encode()
        await exchange.answer(200, gzip.compress(body), content_type="application/json", content_encoding="gzip")

    async def other(exchange: Exchange) -> None:
        await exchange.answer(200, b"x", content_type=exchange.message["method"], content_encoding="br")

    served = {"bomb": bomb, "good": good, "application/json": other, "text/event-stream": other}
    async with connected(served, max_message_size=1_000_000) as wire:
        assert "larger than 1000000 bytes" in (await wire.request("bomb")).message
        assert await wire.request("good") == {"packed": True}
        for media_type in ("application/json", "text/event-stream"):
            assert "unrequested content encoding" in (await wire.request(media_type)).message
        await still_fine(wire)


async def test_a_truncated_answer_is_an_error_of_its_call() -> None:
    async def before(exchange: Exchange) -> None:
        pass

    async def amid(exchange: Exchange) -> None:
        await exchange.begin(200, content_type="application/json", content_length="100")
        await exchange.write(b'{"jsonrpc"')

    async def streamed(exchange: Exchange) -> None:
        await exchange.begin(200, content_type="text/event-stream")
        await exchange.write("data: {")

    async with connected({"before": before, "amid": amid, "streamed": streamed}) as wire:
        for method in ("before", "amid", "streamed"):
            error = await wire.request(method)
            assert (error.code, is_lost(MCPError.from_error_data(error))) == (CONNECTION_CLOSED, True)
        await still_fine(wire)


async def test_a_missing_answer_is_an_error_of_its_call(clock: Clock) -> None:
    asked = asyncio.Event()

    async def never(exchange: Exchange) -> None:
        asked.set()
        await asyncio.Event().wait()

    async with connected({"never": never}, read_timeout=10) as wire:
        asking = asyncio.create_task(wire.request("never"))
        await asked.wait()
        await clock.advance(10)
        error = await asking
        assert (error.code, error.message) == (
            CONNECTION_CLOSED,
            "Connection closed: the server did not respond in time",
        )
        await still_fine(wire)


async def test_a_refusal_is_reported_by_its_status_without_its_body(subtests: pytest.Subtests) -> None:
    for status in [400, 401, 403, 418, 429, 500, 599]:
        with subtests.test(status=status):

            async def refuse(exchange: Exchange, status: int = status) -> None:
                await exchange.answer(status, "<h1>secret words</h1>", content_type="text/html", retry_after="7")

            async with connected({"refuse": refuse}) as wire:
                error = await wire.request("refuse")
                assert error.code == INTERNAL_ERROR
                assert error.message.startswith(f"The server answered HTTP {status}")
                assert error.data == {"status": status, "retryAfter": 7}
                assert "secret words" not in str(error)
                await still_fine(wire)


async def test_a_gateway_error_is_a_connection_error(subtests: pytest.Subtests) -> None:
    for status in [502, 503, 504]:
        with subtests.test(status=status):

            async def refuse(exchange: Exchange, status: int = status) -> None:
                await exchange.answer(status, "<h1>secret words</h1>", content_type="text/html")

            async with connected({"refuse": refuse}) as wire:
                error = await wire.request("refuse")
                assert error.message.startswith(f"Connection closed: the server answered HTTP {status} ")
                assert is_lost(MCPError.from_error_data(error))
                await still_fine(wire)


async def test_a_json_rpc_error_takes_precedence_over_its_status() -> None:
    async def refuse(exchange: Exchange) -> None:
        error = {"jsonrpc": "2.0", "id": None, "error": {"code": -32602, "message": "no", "data": {"a": 1}}}
        await exchange.answer(400, json.dumps(error), content_type="application/json")

    async with connected({"refuse": refuse}) as wire:
        error = await wire.request("refuse")
        assert (error.code, error.message, error.data) == (-32602, "no", {"a": 1})


async def test_a_session_unknown_to_the_server_is_over(subtests: pytest.Subtests) -> None:
    for status, text in [
        (404, "Not found"),
        # The text of the Python SDK.
        (404, json.dumps({"jsonrpc": "2.0", "id": None, "error": {"code": -32600, "message": "Session not found"}})),
        # The text of an example of the TypeScript SDK, with an id or without.
        (400, json.dumps({"jsonrpc": "2.0", "error": {"code": -32000, "message": "Bad Request: No valid session ID"}})),
        (400, json.dumps({"jsonrpc": "2.0", "id": None, "error": {"code": -32000, "message": "Session not found"}})),
    ]:
        with subtests.test(status=status, text=text):

            async def greet(exchange: Exchange) -> None:
                result = {
                    "protocolVersion": "2025-06-18",
                    "capabilities": {},
                    "serverInfo": {"name": "x", "version": "1"},
                }
                body = json.dumps({"jsonrpc": "2.0", "id": exchange.message["id"], "result": result})
                await exchange.answer(200, body, content_type="application/json", mcp_session_id="one")

            async def refuse(exchange: Exchange, status: int = status, text: str = text) -> None:
                await exchange.answer(status, text, content_type="application/json")

            async with connected({"initialize": greet, "refuse": refuse, "DELETE": refuse}) as wire:
                assert (await wire.request("refuse")).message != "Session terminated"  # the session comes later
                await wire.request("initialize", 2)
                error = await wire.request("refuse", 3)
                assert is_terminated(MCPError.from_error_data(error))


async def test_a_body_that_is_no_message_is_an_error_of_its_call() -> None:
    async def page(exchange: Exchange) -> None:
        await exchange.answer(200, "<h1>Login</h1>", content_type="text/html")

    async def rubbish(exchange: Exchange) -> None:
        await exchange.answer(200, '{"detail": "no"}', content_type="application/json")

    async with connected({"page": page, "rubbish": rubbish}) as wire:
        assert "content type" in (await wire.request("page")).message
        assert (await wire.request("rubbish")).code == -32700
        await still_fine(wire)


async def test_a_notification_that_is_refused_or_lost_ends_nothing() -> None:
    async def refuse(exchange: Exchange) -> None:
        await exchange.answer(500)

    async def cut(exchange: Exchange) -> None:
        pass

    async with connected({"refuse": refuse, "cut": cut}) as wire:
        await wire.notify("refuse")
        await wire.notify("cut")
        await still_fine(wire)


async def test_an_unreachable_server_is_reported_without_secrets() -> None:
    target = StreamableHTTP("http://user:pw@127.0.0.1:9/mcp?key=k", headers=SECRET, environment_proxies=False)
    with pytest.raises(ClientConnectionError) as failed:
        async with target.open() as streams:
            await Wire(*streams).request("fine")
    assert str(failed.value) == "The server could not be reached: All connection attempts failed"


async def test_a_server_that_goes_away_ends_the_connection() -> None:
    gone = asyncio.Event()

    async def use(port: int, up: asyncio.Event) -> None:
        target = StreamableHTTP(f"http://127.0.0.1:{port}/mcp", environment_proxies=False)
        async with target.open() as streams:
            await still_fine(Wire(*streams))
            up.set()
            await gone.wait()
            await Wire(*streams).request("fine")

    async with listening(exchanges({"fine": fine})) as port:
        up = asyncio.Event()
        using = asyncio.create_task(use(port, up))
        await up.wait()
    gone.set()
    with pytest.raises(ClientConnectionError, match="could not be reached"):
        await using


async def test_an_exception_of_the_block_is_raised_unchanged() -> None:
    with pytest.raises(KeyError):
        async with connected({}):
            raise KeyError("mine")


async def test_a_redirect_is_followed_within_the_origin_and_nowhere_else() -> None:
    leaked: list[dict[str, str]] = []

    async def thief(exchange: Exchange) -> None:
        leaked.append(exchange.headers)
        await exchange.result(stolen=True)

    async with listening(exchanges(thief)) as other:

        async def serve(exchange: Exchange) -> None:
            if exchange.path == "/mcp/":
                await exchange.result(sent=exchange.headers["authorization"])
            elif exchange.message["method"] == "within":
                await exchange.answer(307, location="/mcp/")
            else:
                await exchange.answer(307, location=f"http://127.0.0.1:{other}/mcp?state=x")

        async with connected(serve, headers=SECRET) as wire:
            assert await wire.request("within") == {"sent": "Bearer s3cret"}
            error = await wire.request("away")
            assert "not followed" in error.message
            assert "state=x" not in error.message
    assert not leaked


async def test_a_server_that_does_not_close_is_left_in_bounded_time(clock: Clock) -> None:
    asked = asyncio.Event()

    async def serve(exchange: Exchange) -> None:
        if exchange.method == "DELETE":
            asked.set()
            await asyncio.Event().wait()
        body = json.dumps({"jsonrpc": "2.0", "id": 1, "result": {}})
        await exchange.answer(200, body, content_type="application/json", mcp_session_id="s1")

    async def use() -> None:
        async with connected(serve) as wire:
            await wire.request("initialize")

    using = asyncio.create_task(use())
    await asked.wait()
    await clock.advance(http.SESSION_CLOSE_TIMEOUT_SECONDS)
    await using


async def test_proxies_of_the_environment_are_used_on_request_only(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    async def proxy(exchange: Exchange) -> None:
        asked.append(exchange.path)
        await exchange.result(by="proxy")

    async with listening(exchanges(proxy)) as port, listening(exchanges({"fine": fine})) as direct:
        for name in ("NO_PROXY", "no_proxy", "ALL_PROXY", "all_proxy"):
            monkeypatch.delenv(name, raising=False)
        for name in ("HTTP_PROXY", "http_proxy"):
            monkeypatch.setenv(name, f"http://127.0.0.1:{port}")
        url = f"http://127.0.0.1:{direct}/mcp"
        async with StreamableHTTP(url).open() as streams:
            assert await Wire(*streams).request("fine") == {"by": "proxy"}
        async with StreamableHTTP(url, environment_proxies=False).open() as streams:
            assert await Wire(*streams).request("fine") == {"fine": True}
    assert asked == [url]


async def test_a_result_without_a_type_is_complete() -> None:
    async def discover(exchange: Exchange) -> None:
        served = {"supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}}
        await exchange.result(**served, ttlMs=0, cacheScope="private")

    async def call(exchange: Exchange) -> None:
        await exchange.result(content=[{"type": "text", "text": "3"}])

    async with listening(exchanges({"server/discover": discover, "tools/call": call})) as port:
        target = StreamableHTTP(f"http://127.0.0.1:{port}/mcp", environment_proxies=False)
        async with Client(target, protocol_version="stateless") as client:
            assert (await client.call_tool("add")).content[0].text == "3"
