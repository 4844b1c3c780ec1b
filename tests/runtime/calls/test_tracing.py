"""OpenTelemetry: a span for each call below the client's, and calls without the package."""

import asyncio
import contextlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from opentelemetry import baggage, propagate, trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from mcp_django import Context, MCPError, Server, ToolError
from mcp_django.lowlevel import Handlers
from mcp_django.protocol import jsonrpc
from mcp_django.protocol.errors import InvalidParams
from mcp_django.protocol.headers import Headers
from mcp_django.runtime.calls import tracing as module
from mcp_django.runtime.calls.observer import SignalCallObserver
from mcp_django.runtime.calls.tracing import CallTracer, create_tracer
from mcp_django.server.calls.call import PIPE, Connection, NetworkInfo
from mcp_django.server.calls.message_queue import Outbox
from mcp_django.server.calls.pending import PendingResponse
from mcp_django.server.ports import Overloaded
from tests.server.client import HANDSHAKE, STATELESS, PipelineClient, make_server, ports
from tests.support.clock import Clock

ROOT = Path(__file__).resolve().parent.parent.parent.parent
TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
PARENT = f"00-{TRACE}-{SPAN}-01"
OTHER = f"00-{'a' * 32}-{'b' * 16}-01"
both = pytest.mark.parametrize("version", [HANDSHAKE, STATELESS], ids=["handshake", "stateless"])


class Recording:
    """Collects the spans of a test."""

    def __init__(self) -> None:
        self._exporter = InMemorySpanExporter()
        self.provider = TracerProvider()
        self.provider.add_span_processor(SimpleSpanProcessor(self._exporter))
        self.tracer = self.provider.get_tracer("tests")

    @property
    def spans(self) -> dict[str, ReadableSpan]:
        return {span.name: span for span in self._exporter.get_finished_spans()}

    def clear(self) -> None:
        self._exporter.clear()

    def one(self) -> ReadableSpan:
        (span,) = self._exporter.get_finished_spans()
        return span


@pytest.fixture
def recording(monkeypatch: pytest.MonkeyPatch) -> Iterator[Recording]:
    """Set up a tracer provider."""
    recording = Recording()
    monkeypatch.setattr(trace, "get_tracer_provider", lambda: recording.provider)
    yield recording
    assert trace.get_current_span() is trace.INVALID_SPAN, "a span was left open"


def make_traced_server(recording: Recording, **given: Any) -> Server:
    server = make_server(**given)
    outside = ports()
    server.bind(ports(executor=outside.executor, observer=SignalCallObserver(outside.executor, create_tracer())))

    @server.tool
    async def work() -> str:
        with recording.tracer.start_as_current_span("inner"):
            return "done"

    @server.tool
    def work_in_a_thread() -> str:
        with recording.tracer.start_as_current_span("inner"):
            return "done"

    @server.tool
    async def work_elsewhere() -> None:
        def inner() -> None:
            recording.tracer.start_span("inner").end()

        await sync_to_async(inner)()

    @server.tool
    async def passed_on() -> dict[str, str]:
        carrier: dict[str, str] = {}
        propagate.inject(carrier)
        return carrier

    @server.tool
    async def carried(name: str) -> str:
        return str(baggage.get_baggage(name))

    @server.tool
    async def fail(how: str) -> None:
        raise {
            "tool": ToolError("no"),
            "bug": RuntimeError("swordfish"),
            "protocol": MCPError("no"),
            "overloaded": Overloaded(),
            "invalid": InvalidParams("no such room"),
        }[how]

    @server.tool(timeout=5)
    async def slow() -> None:
        await asyncio.Event().wait()

    @server.tool
    async def ask(ctx: Context) -> str:
        return str(await ctx.elicit("Sure?", bool))

    @server.prompt
    async def welcome() -> str:
        return "Welcome"

    @server.tool
    async def plain() -> str:
        return "done"

    @server.resource("note://x?secret")
    async def note() -> str:
        return "x"

    return server


def meta_of(**meta: str) -> dict[str, Any]:
    return {"_meta": meta}


@pytest.mark.parametrize(
    ("version", "tool"),
    [(HANDSHAKE, "work"), (STATELESS, "work"), (STATELESS, "work_in_a_thread"), (HANDSHAKE, "work_elsewhere")],
)
async def test_spans_of_a_handler_are_below_the_call_and_that_below_the_client(
    version: str, tool: str, recording: Recording
) -> None:
    params = {"name": tool, "arguments": {}, **meta_of(traceparent=PARENT)}
    await PipelineClient(make_traced_server(recording), version=version).request("tools/call", params)
    call, inner = recording.spans[f"tools/call {tool}"], recording.spans["inner"]
    assert call.parent is not None
    assert inner.parent is not None
    assert trace.format_trace_id(call.context.trace_id) == TRACE
    assert trace.format_span_id(call.parent.span_id) == SPAN
    assert call.parent.is_remote
    assert inner.parent.span_id == call.context.span_id
    assert call.kind is trace.SpanKind.SERVER


async def test_without_a_parent_a_trace_begins(recording: Recording) -> None:
    await PipelineClient(make_traced_server(recording)).call("work")
    assert recording.spans["tools/call work"].parent is None


async def test_a_malformed_parent_is_ignored(subtests: pytest.Subtests, recording: Recording) -> None:
    for text in ["nonsense", f"00-{'0' * 32}-{SPAN}-01", PARENT + "-more"]:
        with subtests.test(text=text):
            recording.clear()
            await PipelineClient(make_traced_server(recording)).request(
                "tools/list", meta_of(traceparent=text, tracestate="a=1")
            )
            assert recording.one().parent is None


async def test_an_injected_context_names_the_call(recording: Recording) -> None:
    params = {"name": "passed_on", "arguments": {}, **meta_of(traceparent=PARENT, tracestate="a=1", baggage="b=2")}
    result = await PipelineClient(make_traced_server(recording)).request("tools/call", params)
    carried = result["structuredContent"]
    span = recording.one().context
    assert carried["traceparent"] == f"00-{TRACE}-{trace.format_span_id(span.span_id)}-01"
    assert carried["tracestate"] == "a=1"
    assert carried["baggage"] == "b=2"


async def test_baggage_reaches_handlers_without_a_trace(recording: Recording) -> None:
    params = {"name": "carried", "arguments": {"name": "tenant"}, **meta_of(baggage="tenant=t1")}
    result = await PipelineClient(make_traced_server(recording)).request("tools/call", params)
    assert result["content"][0]["text"] == "t1"


async def request_over_http(peer: PipelineClient, message: dict[str, Any], headers: dict[str, str]) -> None:
    """Send a request of the handshake era with HTTP headers."""
    pairs = [(name.encode(), value.encode()) for name, value in headers.items()]
    connection = Connection(peer.principal, headers=Headers(pairs), session=peer.session)
    era = peer.pipeline.handshake
    outcome = peer.pipeline.handle(era, {"jsonrpc": "2.0", "id": 1, **message}, connection, Outbox())
    assert isinstance(outcome, PendingResponse)
    jsonrpc.loads(await outcome.run)


def ids(span: ReadableSpan) -> tuple[str, str | None]:
    assert span.context is not None
    parent = None if span.parent is None else trace.format_span_id(span.parent.span_id)
    return trace.format_trace_id(span.context.trace_id), parent


async def test_the_headers_name_the_parent_if_meta_does_not(recording: Recording) -> None:
    peer = PipelineClient(make_traced_server(recording), version=HANDSHAKE)
    await request_over_http(peer, {"method": "ping"}, {"traceparent": OTHER})
    assert ids(recording.one()) == ("a" * 32, "b" * 16)
    assert recording.one().links == ()


async def test_meta_wins_over_the_headers(recording: Recording) -> None:
    peer = PipelineClient(make_traced_server(recording), version=HANDSHAKE)
    message = {"method": "ping", "params": meta_of(traceparent=PARENT)}
    await request_over_http(peer, message, {"traceparent": OTHER, "tracestate": "other=1"})
    assert ids(recording.one()) == (TRACE, SPAN)
    assert not recording.one().context.trace_state


async def test_the_span_of_an_instrumented_transport_is_the_parent_or_linked(recording: Recording) -> None:
    peer = PipelineClient(make_traced_server(recording), version=HANDSHAKE)
    with recording.tracer.start_as_current_span("POST /mcp") as http:
        await request_over_http(peer, {"method": "ping"}, {"traceparent": OTHER})
        await request_over_http(peer, {"method": "tools/list", "params": meta_of(traceparent=PARENT)}, {})
    around = http.get_span_context()
    below, linked = recording.spans["ping"], recording.spans["tools/list"]
    assert below.parent == around
    assert below.links == ()
    assert ids(linked) == (TRACE, SPAN)
    assert [link.context for link in linked.links] == [around]


async def test_other_propagators_read_their_own_fields(
    recording: Recording, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    read: list[Any] = []

    class Other(propagate.textmap.TextMapPropagator):
        fields = {"X-Other"}

        def extract(self, carrier: Any, context: Any = None, getter: Any = None) -> Any:
            read.append(carrier)
            return context or {}

        def inject(self, carrier: Any, context: Any = None, setter: Any = None) -> None:
            """Inject nothing."""

    monkeypatch.setattr(propagate, "get_global_textmap", Other)
    peer = PipelineClient(make_traced_server(recording), version=HANDSHAKE)
    await request_over_http(
        peer, {"method": "ping", "params": {"_meta": {"X-Other": "from\nmeta"}}}, {"x-other": "fine"}
    )
    assert read == [{"X-Other": "fine"}, {}]


@both
async def test_a_span_has_the_attributes_of_its_call(version: str, recording: Recording) -> None:
    peer = PipelineClient(make_traced_server(recording), version=version)
    await peer.call("work")
    await peer.request("prompts/get", {"name": "welcome"})
    await peer.request("resources/read", {"uri": "note://x?secret"})
    spans = recording.spans
    assert set(spans) == {"inner", "tools/call work", "prompts/get welcome", "resources/read"}
    common = {
        "mcp.protocol.version": version,
        "mcp_django.principal": "local",
        "mcp_django.outcome": "ok",
    }
    if version == HANDSHAKE:
        session = str(spans["resources/read"].attributes["mcp.session.id"])
        assert len(session) == 8
        common["mcp.session.id"] = session
    assert spans["tools/call work"].attributes == {
        **common,
        "mcp.method.name": "tools/call",
        "gen_ai.tool.name": "work",
        "gen_ai.operation.name": "execute_tool",
        "jsonrpc.request.id": "1",
    }
    assert spans["prompts/get welcome"].attributes == {
        **common,
        "mcp.method.name": "prompts/get",
        "gen_ai.prompt.name": "welcome",
        "jsonrpc.request.id": "2",
    }
    assert spans["resources/read"].attributes == {
        **common,
        "mcp.method.name": "resources/read",
        "mcp.resource.uri": "note://x?…",
        "jsonrpc.request.id": "3",
    }


async def test_a_span_has_the_outcome_of_its_call(
    subtests: pytest.Subtests, recording: Recording, clock: Clock
) -> None:
    for version in (HANDSHAKE, STATELESS):
        peer = PipelineClient(make_traced_server(recording), version=version)
        for name, arguments, outcome, error, code in [
            ("plain", {}, "ok", None, None),
            ("fail", {"how": "tool"}, "tool_error", "tool_error", None),
            ("fail", {"how": "bug"}, "bug", "tool_error", None),
            ("fail", {"how": "protocol"}, "error", "-32603", "-32603"),
            ("fail", {"how": "overloaded"}, "overloaded", "-32603", "-32603"),
            ("fail", {"how": "invalid"}, "error", None, "-32602"),
            ("slow", {}, "timeout", "tool_error", None),
            ("unknown", {}, "error", None, "-32602"),
        ]:
            with subtests.test(version=version, name=name, arguments=arguments):
                recording.clear()
                calling = asyncio.ensure_future(peer.call(name, **arguments))
                await clock.advance_until(calling.done)
                with contextlib.suppress(MCPError, Overloaded):
                    await calling
                span = recording.one()
                attributes = dict(span.attributes or {})
                assert attributes["mcp_django.outcome"] == outcome
                assert attributes.get("error.type") == error
                assert attributes.get("rpc.response.status_code") == code
                assert span.status.status_code is (trace.StatusCode.ERROR if error else trace.StatusCode.UNSET)
                assert span.status.description == ("no" if arguments.get("how") == "protocol" else None)
                assert ("mcp_django.reference" in attributes) is (outcome == "bug")
                assert "swordfish" not in span.to_json()


async def test_a_span_has_the_network_and_the_address_of_the_client(
    subtests: pytest.Subtests, recording: Recording
) -> None:
    def get_address(peer: str | None, headers: Headers | None) -> str | None:
        return peer if not headers else headers["X-Forwarded-For"]

    server = make_traced_server(recording)
    outside = ports()
    observer = SignalCallObserver(outside.executor, CallTracer(get_address))
    server.bind(ports(executor=outside.executor, observer=observer))
    client = PipelineClient(server, version=HANDSHAKE)
    forwarded = Headers([(b"x-forwarded-for", b"2001:db8::/64")])
    tcp = {"network.transport": "tcp"}
    for network, headers, expected in [
        (None, None, {}),
        (PIPE, None, {"network.transport": "pipe"}),
        (
            NetworkInfo("tcp", "http", "1.1", "192.0.2.7", 5000),
            Headers([]),
            {
                **tcp,
                "network.protocol.name": "http",
                "network.protocol.version": "1.1",
                "client.address": "192.0.2.7",
                "client.port": 5000,
            },
        ),
        (
            NetworkInfo("tcp", "websocket", None, "10.0.0.1", 5000),
            forwarded,
            {**tcp, "network.protocol.name": "websocket", "client.address": "2001:db8::/64"},
        ),
    ]:
        with subtests.test(network=network):
            recording.clear()
            connection = Connection(client.principal, headers=headers, network=network, session=client.session)
            message = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
            answer = client.pipeline.handle(client.pipeline.handshake, message, connection, Outbox())
            assert isinstance(answer, PendingResponse)
            await answer.run
            found = recording.one().attributes or {}
            assert {name: value for name, value in found.items() if name.startswith(("network", "client"))} == expected


async def test_a_cancelled_call_has_a_span_that_is_no_error(recording: Recording) -> None:
    reached = asyncio.Event()
    server = make_traced_server(recording)

    @server.tool
    async def wait() -> None:
        reached.set()
        await asyncio.Event().wait()

    task = asyncio.ensure_future(PipelineClient(server).call("wait"))
    await reached.wait()
    task.cancel()
    await asyncio.wait([task])
    span = recording.one()
    assert (span.attributes or {})["mcp_django.outcome"] == "cancelled"
    assert span.status.status_code is trace.StatusCode.UNSET


async def test_a_round_with_input_requests_is_a_span_that_is_no_error(recording: Recording) -> None:
    await PipelineClient(make_traced_server(recording)).call("ask")
    assert recording.one().status.status_code is trace.StatusCode.UNSET


async def test_names_that_do_not_exist_do_not_name_spans(recording: Recording) -> None:
    peer = PipelineClient(make_traced_server(recording))
    for method, params in (("tools/call", {"name": "made up"}), ("made/up", {})):
        with pytest.raises(MCPError):
            await peer.request(method, params)
    assert set(recording.spans) == {"tools/call", "_OTHER"}


async def test_a_tool_of_a_provider_names_its_span(recording: Recording) -> None:
    async def list_tools(ctx: Context) -> list[dict[str, Any]]:
        return [{"name": "soup", "inputSchema": {"type": "object"}}]

    async def call_tool(name: str, arguments: dict[str, Any], ctx: Context) -> str:
        return "coming"

    provider = Handlers(list_tools=list_tools, call_tool=call_tool)
    await PipelineClient(make_traced_server(recording, providers=[provider])).call("soup")
    assert set(recording.spans) == {"tools/call soup"}


async def test_the_log_and_the_span_name_the_same_trace(recording: Recording) -> None:
    found: list[str | None] = []
    server = make_traced_server(recording)

    @server.tool
    async def look(ctx: Context) -> None:
        found.append(ctx.call.record.trace_id)

    await PipelineClient(server).call("look")
    assert found == [ids(recording.one())[0]]


async def test_a_failing_tracer_affects_nothing_else(
    recording: Recording, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*args: Any, **kwargs: Any) -> None:
        raise RuntimeError("no exporter")

    monkeypatch.setattr(SimpleSpanProcessor, "on_start", fail)
    assert await PipelineClient(make_traced_server(recording)).text("plain") == "done"
    assert caplog.text.count("Failed to trace a call") == 1


def test_until_a_provider_is_set_there_are_no_spans(monkeypatch: pytest.MonkeyPatch) -> None:
    providers: list[Any] = [trace.ProxyTracerProvider()]
    looks: list[float] = []

    def look() -> Any:
        looks.append(0)
        return providers[-1]

    class Passing:
        started_at = 1000.0

    monkeypatch.setattr(trace, "get_tracer_provider", look)
    tracing, call = CallTracer(), Passing()
    assert [tracing.create_span(call) for _ in range(3)] == [None] * 3  # type: ignore[arg-type]
    assert len(looks) == 1
    providers.append(Recording().provider)
    assert tracing.create_span(call) is None  # type: ignore[arg-type]
    call.started_at += module.PROVIDER_CHECK_INTERVAL_SECONDS
    assert tracing.create_span(call) is not None  # type: ignore[arg-type]
    assert tracing.create_span(call) is not None  # type: ignore[arg-type]
    assert len(looks) == 2


def test_everything_works_without_the_package() -> None:
    code = (
        "import sys; sys.modules['opentelemetry'] = None\n"
        "from django.conf import settings; settings.configure()\n"
        "from mcp_django.runtime.calls import observer, tracing\n"
        "assert tracing.create_tracer() is None\n"
    )
    ran = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert ran.returncode == 0, ran.stderr
