"""Log lines, signals and traces of calls, through both transports and in both eras."""

import contextlib
import json
import logging
import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

import mcp_django
from mcp_django import Context
from mcp_django.observability import Call
from mcp_django.signals import call_finished, call_started
from tests.interaction.clients import HANDSHAKE, STATELESS, Client
from tests.interaction.transports import contract, on_http
from tests.testapp.models import Book

TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
PARENT = f"00-{TRACE}-{SPAN}-01"
OTHER = f"00-{'a' * 32}-{'b' * 16}-00"
NAME = "mcp_django.calls"

pytestmark = pytest.mark.revisions(HANDSHAKE[-1], STATELESS)


@mcp_django.tool(server="interaction")
async def traced(ctx: Context) -> dict[str, Any]:
    """Return the trace of the call."""
    trace = ctx.trace
    return {} if trace is None else {**trace.headers(), "sampled": trace.sampled, "entries": dict(trace.baggage)}


@pytest.fixture
def lines(caplog: pytest.LogCaptureFixture) -> Callable[[], list[str]]:
    """`lines()`: those since the last look, without the times."""
    caplog.set_level(logging.INFO, NAME)

    def look() -> list[str]:
        found = [record.getMessage() for record in caplog.records if record.name == NAME]
        caplog.clear()
        return [re.sub(r" in [\d.]+ ms,", ",", line) for line in found]

    return look


@pytest.fixture
def signals(checkpoints) -> Iterator[list[str]]:
    """Record the signals that receivers got."""
    received: list[str] = []

    def started(call: Call, **kwargs: Any) -> None:
        received.append(f"{call.method} started")

    async def finished(call: Call, outcome: str, **kwargs: Any) -> None:
        received.append(f"{call.method} {outcome}")
        checkpoints.note("finished")

    call_started.connect(started)
    call_finished.connect(finished)
    yield received
    call_started.disconnect(started)
    call_finished.disconnect(finished)


@contextlib.contextmanager
def auditing(receiver: Any) -> Iterator[None]:
    call_finished.connect(receiver)
    try:
        yield
    finally:
        call_finished.disconnect(receiver)


def plainly(call: Call, outcome: str, **kwargs: Any) -> None:
    """Audit with a plain function."""
    Book.objects.create(title=f"{call.principal.user.username} {call.params.get('name')} {outcome}")


async def asynchronously(call: Call, outcome: str, **kwargs: Any) -> None:
    """Audit with a coroutine."""
    await Book.objects.acreate(title=f"{call.principal.user.username} {call.params.get('name')} {outcome}")


def beginnings(found: list[str]) -> list[str]:
    return [line.partition(",")[0] for line in found]


@contract
async def test_every_request_of_a_client_is_logged_on_one_line(connect, lines) -> None:
    client = await connect()
    opened = ["server/discover: ok"] if client.stateless else ["initialize: ok"]
    assert beginnings(lines()) == opened  # `initialized` is a notification
    for method, params, line in (
        ("tools/list", {}, "tools/list: ok"),
        ("tools/call", {"name": "add", "arguments": {"a": 1, "b": 2}}, "tools/call add: ok"),
        ("tools/call", {"name": "add_in_a_thread", "arguments": {"a": 1, "b": 2}}, "tools/call add_in_a_thread: ok"),
        ("tools/call", {"name": "steps", "arguments": {"count": 2}}, "tools/call steps: ok"),
        ("tools/call", {"name": "refuse", "arguments": {}}, "tools/call refuse: tool_error"),
        ("tools/call", {"name": "too_slow", "arguments": {}}, "tools/call too_slow: timeout"),
        ("tools/call", {"name": "buggy", "arguments": {}}, "tools/call buggy: bug"),
        ("tools/call", {"name": "nobody", "arguments": {}}, "tools/call nobody: error"),
        ("tools/call", {"name": "guarded", "arguments": {}}, "tools/call guarded: error"),
        ("tools/call", {"name": "scoped", "arguments": {}}, "tools/call scoped: error"),
        ("prompts/get", {"name": "welcome", "arguments": {"name": "you"}}, "prompts/get welcome: ok"),
        ("resources/read", {"uri": "note://static"}, "resources/read note://static: ok"),
        ("resources/read", {"uri": "note://buggy"}, "resources/read note://buggy: bug"),
        ("no/such", {}, "no/such: error"),
    ):
        await client.request(method, params)
        assert beginnings(lines()) == [line]


async def test_a_log_line_has_the_user_and_the_session(either, lines) -> None:
    client = await either(token="bob")
    lines()
    await client.tool("add", {"a": 1, "b": 2}, id="the\nid")
    (line,) = lines()
    assert line.isprintable()
    assert r'server=interaction principal=tests|bob| call_id="the\nid"' in line
    assert f"revision={client.revision}" in line
    assert ("session=" in line) is not client.stateless
    if client.session is not None:
        assert client.session not in line
        assert client.session[:8] not in line


async def test_log_lines_have_no_secrets_and_no_arguments(either, lines) -> None:
    client = await either(token="alice")
    await client.request("resources/read", {"uri": "note://x?token=swordfish"})
    await client.tool("add", {"a": "swordfish", "b": 2})
    assert "swordfish" not in "".join(lines())


@on_http
async def test_a_request_that_is_not_a_call_is_not_logged(modern, lines) -> None:
    client = modern()
    assert (await client.post(body=b"{")).status == 400
    assert (await client.request("tools/list", headers={"authorization": "Bearer nobody"})).status == 401
    assert (await client.request("tools/list", headers={"mcp-method": "other"})).status == 400
    assert lines() == []


@contract
async def test_each_element_of_a_batch_is_logged(transport, lines) -> None:
    client = await Client(transport, "2025-03-26").open()
    lines()
    add = {"name": "add", "arguments": {"a": 1, "b": 2}}
    await client.post(
        [
            {"jsonrpc": "2.0", "id": 1, "method": "ping"},
            {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": add},
            {"jsonrpc": "2.0", "id": 3, "method": "no/such"},
            {"jsonrpc": "2.0", "method": "notifications/cancelled"},
        ]
    )
    assert sorted(beginnings(lines())) == ["no/such: error", "ping: ok", "tools/call add: ok"]


async def test_a_call_over_the_limit_is_logged(either, limits, checkpoints, lines, no_queue) -> None:
    limits(IN_FLIGHT=1)
    client = await either()
    lines()
    first = client.begin("tools/call", {"name": "wait", "arguments": {}})
    await checkpoints.until("wait reached")
    assert (await client.tool("add", {"a": 1, "b": 2})).busy(429)
    (line,) = lines()
    assert line.startswith("tools/call add: overloaded, ")
    checkpoints.gate("wait").set()
    await first.reply()
    assert beginnings(lines()) == ["tools/call wait: ok"]


async def test_an_id_in_use_is_logged(latest_legacy, checkpoints, lines) -> None:
    client = await latest_legacy()
    lines()
    first = client.begin("tools/call", {"name": "wait", "arguments": {}}, id=7)
    await checkpoints.until("wait reached")
    await client.request("ping", id=7)
    await client.tool("add", {"a": 1, "b": 2}, id=7)
    assert beginnings(lines()) == ["ping: ok", "tools/call add: error"]
    checkpoints.gate("wait").set()
    await first.reply()


async def test_a_disconnect_is_logged(modern, checkpoints, lines, signals) -> None:
    client = modern()
    exchange = client.begin("tools/call", {"name": "wait", "arguments": {}})
    await checkpoints.until("wait reached")
    exchange.leave()
    await checkpoints.until("wait cancelled")
    await exchange.end()
    await checkpoints.until("finished")
    assert signals == ["tools/call started", "tools/call cancelled"]
    assert beginnings(lines()) == ["tools/call wait: cancelled"]


async def test_signals_are_sent_around_every_request(connect, signals) -> None:
    client = await connect()
    opening = "server/discover" if client.stateless else "initialize"
    await client.request("tools/list")
    await client.tool("refuse")
    await client.request("no/such")
    assert signals == [
        f"{opening} started",
        f"{opening} ok",
        "tools/list started",
        "tools/list ok",
        "tools/call started",
        "tools/call tool_error",
        "no/such started",
        "no/such error",
    ]


async def test_a_receiver_of_signals_can_write_an_audit_log(either, subtests: pytest.Subtests) -> None:
    for receiver in [plainly, asynchronously]:
        with subtests.test(receiver=receiver.__name__):
            await Book.objects.all().adelete()
            with auditing(receiver):
                client = await either()
                await client.tool("add", {"a": 1, "b": 2})
                await client.tool("add_in_a_thread", {"a": 1, "b": 2})
                await client.tool("too_slow")
            titles = {title async for title in Book.objects.values_list("title", flat=True)}
            assert {"alice add ok", "alice add_in_a_thread ok", "alice too_slow timeout"} <= titles


async def test_a_handler_sees_the_trace_of_meta(connect) -> None:
    client = await connect(headers={"traceparent": OTHER, "tracestate": "other=1"})
    meta = {"traceparent": PARENT, "tracestate": "rojo=1", "baggage": "userId=alice"}
    reply = await client.tool("traced", meta=meta)
    assert text_of(reply) == {**meta, "sampled": True, "entries": {"userId": "alice"}}


async def test_a_handler_sees_the_trace_of_the_headers(connect) -> None:
    client = await connect()
    headers = {"traceparent": OTHER, "tracestate": "other=1"}
    assert text_of(await client.tool("traced", headers=headers)) == {**headers, "sampled": False, "entries": {}}


async def test_a_malformed_trace_is_ignored(connect) -> None:
    client = await connect()
    meta = {"traceparent": "00-nonsense", "tracestate": 7, "baggage": ["x"]}
    assert text_of(await client.tool("traced", meta=meta)) == {}
    assert text_of(await client.tool("traced")) == {}


def text_of(reply: Any) -> Any:
    return json.loads(reply.result["content"][0]["text"])


async def test_a_log_line_has_the_trace(either, lines) -> None:
    client = await either()
    lines()
    await client.request("tools/list", meta={"traceparent": PARENT})
    assert f"trace_id={TRACE}" in lines()[0]


@contract
async def test_a_call_is_a_child_span_of_the_one_of_the_client(either, transport, monkeypatch) -> None:
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(trace, "get_tracer_provider", lambda: provider)
    client = await either()
    exporter.clear()
    await client.tool("add_in_a_thread", {"a": 1, "b": 2}, meta={"traceparent": PARENT})
    (span,) = exporter.get_finished_spans()
    assert span.name == "tools/call add_in_a_thread"
    assert span.parent is not None
    assert trace.format_trace_id(span.context.trace_id) == TRACE
    assert trace.format_span_id(span.parent.span_id) == SPAN
    assert span.attributes is not None
    network = span.attributes.get("network.transport"), span.attributes.get("network.protocol.name")
    expected = {"stdio": ("pipe", None), "websocket": ("tcp", "websocket")}
    assert network == expected.get(transport.name, ("tcp", "http"))
    assert span.attributes["mcp_django.principal"] == "tests|alice|"
