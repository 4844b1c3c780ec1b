"""OpenTelemetry of the client: spans, metrics, and the trace that the server continues."""

import contextlib
from typing import Any

import pytest
from mcp import MCPError
from opentelemetry import trace
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from mcp_django.client import Client, ClientError, Stdio, StreamableHTTP, WebSocket
from mcp_django.client.session.telemetry import DURATION_BOUNDS_SECONDS, ClientTelemetry
from tests.client.script import ERAS, HANDSHAKE, STATELESS, Script
from tests.support.telemetry import reader, spans

__all__ = ["reader", "spans"]
VERSIONS = {"handshake": HANDSHAKE, "stateless": STATELESS}
SCHEMA = {"type": "object", "properties": {}}


def make_script(era: str) -> Script:
    def call_tool(params: dict[str, Any]) -> dict[str, Any]:
        if params["name"] == "refused":
            raise MCPError(-32602, "no such room")
        return {"content": [{"type": "text", "text": "x"}], "isError": params["name"] == "failing"}

    return Script(
        era,
        tools_call=call_tool,
        tools_list={"tools": [{"name": "add", "inputSchema": SCHEMA}]},
        prompts_get={"messages": []},
        resources_read={"contents": []},
    )


@pytest.mark.parametrize("era", ERAS)
async def test_spans_and_durations_of_requests_follow_the_conventions(
    era: str, subtests: pytest.Subtests, spans: InMemorySpanExporter, reader: InMemoryMetricReader
) -> None:
    script = make_script(era)
    common = {"mcp.protocol.version": VERSIONS[era]}
    execute = {"gen_ai.operation.name": "execute_tool"}
    expected: dict[str, tuple[dict[str, str], str | None]] = {
        "tools/list": ({"mcp.method.name": "tools/list"}, None),
        "prompts/get plan": ({"mcp.method.name": "prompts/get", "gen_ai.prompt.name": "plan"}, None),
        "resources/read": ({"mcp.method.name": "resources/read"}, None),
        "tools/call add": ({"mcp.method.name": "tools/call", "gen_ai.tool.name": "add", **execute}, None),
        "tools/call failing": (
            {
                "mcp.method.name": "tools/call",
                "gen_ai.tool.name": "failing",
                "error.type": "tool_error",
                **execute,
            },
            "",
        ),
        "tools/call refused": (
            {
                "mcp.method.name": "tools/call",
                "gen_ai.tool.name": "refused",
                "error.type": "-32602",
                "rpc.response.status_code": "-32602",
                **execute,
            },
            "no such room",
        ),
    }
    async with Client(script) as client:
        await client.list_tools()
        await client.get_prompt("plan")
        await client.read_resource("https://user:secret@files.example/plan?key=secret#top")
        for name in ("add", "failing", "refused"):
            with contextlib.suppress(ClientError):
                await client.call_tool(name, {})
    spans: dict[str, ReadableSpan] = {span.name: span for span in spans.get_finished_spans()}
    assert set(spans) == set(expected)
    for name, (attributes, description) in expected.items():
        with subtests.test(name=name):
            span = spans[name]
            assert span.kind is trace.SpanKind.CLIENT
            uri = {"mcp.resource.uri": "https://files.example/plan"} if name == "resources/read" else {}
            assert span.attributes == {**common, **attributes, **uri}
            status = trace.StatusCode.UNSET if description is None else trace.StatusCode.ERROR
            assert span.status.status_code is status
            assert (span.status.description or "") == (description or "")

    data = reader.get_metrics_data()
    assert data is not None
    found = {metric.name: metric.data for metric in data.resource_metrics[0].scope_metrics[0].metrics}
    points: list[Any] = list(found["mcp.client.operation.duration"].data_points)
    assert [dict(point.attributes) for point in points] == [common | attributes for attributes, _ in expected.values()]
    assert all(tuple(point.explicit_bounds) == DURATION_BOUNDS_SECONDS for point in points)
    (session,) = found["mcp.client.session.duration"].data_points
    assert dict(session.attributes or {}) == common


async def test_the_request_names_the_trace_of_its_caller(spans: InMemorySpanExporter) -> None:
    script = make_script("stateless")
    async with Client(script) as client:
        with trace.get_tracer_provider().get_tracer("tests").start_as_current_span("job") as job:
            await client.call_tool("add", {})
    context = job.get_span_context()
    (span,) = [span for span in spans.get_finished_spans() if span.name == "tools/call add"]
    assert span.parent == context
    assert span.context is not None
    params = next(params for method, params in script.received if method == "tools/call")
    ids = trace.format_trace_id(context.trace_id), trace.format_span_id(span.context.span_id)
    assert tuple(params["_meta"]["traceparent"].split("-")[1:3]) == ids


def test_the_network_of_a_target_has_no_secrets(subtests: pytest.Subtests) -> None:
    for target, expected in [
        (
            StreamableHTTP("https://files.example/mcp?key=swordfish"),
            ("tcp", "http", "files.example", 443),
        ),
        (WebSocket("ws://files.example:8001/mcp"), ("tcp", "websocket", "files.example", 8001)),
        (Stdio("server"), ("pipe", None, None, None)),
    ]:
        with subtests.test(target=target):
            names = ("network.transport", "network.protocol.name", "server.address", "server.port")
            found = ClientTelemetry(target)._attributes
            assert found == {name: value for name, value in zip(names, expected, strict=True) if value is not None}


async def test_a_lost_server_is_an_error_and_a_cancellation_is_none(spans: InMemorySpanExporter) -> None:
    script = Script("stateless")
    script.refusals = [ClientError("down")]
    client = Client(script, max_retries=0)
    with pytest.raises(ClientError):
        await client.list_tools()
    (span,) = spans.get_finished_spans()
    assert span.status.status_code is trace.StatusCode.ERROR
    assert (span.attributes or {})["error.type"] == "ClientError"
    await client.close()
