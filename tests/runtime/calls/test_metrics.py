"""OpenTelemetry metrics of a server, by the semantic conventions."""

import contextlib
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone
from opentelemetry import metrics
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader

from mcp_django import MCPError, Server, ToolError
from mcp_django.models import Session
from mcp_django.runtime.calls.metrics import DURATION_BOUNDS_SECONDS, CallMetrics, create_call_metrics
from mcp_django.runtime.calls.observer import SignalCallObserver
from tests.server.client import STATELESS, PipelineClient, make_server, ports


@pytest.fixture
def reader(monkeypatch: pytest.MonkeyPatch) -> Iterator[InMemoryMetricReader]:
    """Set up a meter provider."""
    reader = InMemoryMetricReader()
    provider = MeterProvider([reader])
    monkeypatch.setattr(metrics, "get_meter_provider", lambda: provider)
    yield reader
    provider.shutdown()


def read_points(reader: InMemoryMetricReader, name: str) -> list[Any]:
    data = reader.get_metrics_data()
    return [
        point
        for resource in ([] if data is None else data.resource_metrics)
        for scope in resource.scope_metrics
        for metric in scope.metrics
        if metric.name == name
        for point in metric.data.data_points
    ]


def make_measured_server() -> Server:
    server, outside = make_server(), ports()
    server.bind(
        ports(executor=outside.executor, observer=SignalCallObserver(outside.executor, metrics=create_call_metrics()))
    )

    @server.tool
    async def work(how: str = "") -> str:
        if how == "tool":
            raise ToolError("no")
        if how == "bug":
            raise RuntimeError("swordfish")
        if how == "protocol":
            raise MCPError("no")
        return "done"

    @server.prompt
    async def welcome() -> str:
        return "Welcome"

    @server.resource("note://x")
    async def read_note() -> str:
        return "x"

    return server


async def test_each_operation_is_in_the_histogram_with_its_outcome(
    subtests: pytest.Subtests, reader: InMemoryMetricReader
) -> None:
    client = PipelineClient(make_measured_server())
    tool = {"gen_ai.tool.name": "work", "gen_ai.operation.name": "execute_tool"}
    rows: list[tuple[str, dict[str, Any], dict[str, str]]] = [
        ("tools/list", {}, {}),
        ("tools/call", {"name": "work"}, tool),
        ("tools/call", {"name": "work", "arguments": {"how": "tool"}}, {**tool, "error.type": "tool_error"}),
        ("prompts/get", {"name": "welcome"}, {"gen_ai.prompt.name": "welcome"}),
        ("resources/read", {"uri": "note://x"}, {}),
        (
            "tools/call",
            {"name": "work", "arguments": {"how": "protocol"}},
            {**tool, "error.type": "-32603", "rpc.response.status_code": "-32603"},
        ),
        (
            "tools/call",
            {"name": "made up"},
            {"gen_ai.operation.name": "execute_tool", "rpc.response.status_code": "-32602"},
        ),
        ("made/up", {}, {"mcp.method.name": "_OTHER", "rpc.response.status_code": "-32601"}),
    ]
    for method, params, _ in rows:
        with contextlib.suppress(MCPError):
            await client.request(method, params)
    points = read_points(reader, "mcp.server.operation.duration")
    found = [dict(point.attributes) for point in points]
    for method, params, expected in rows:
        with subtests.test(method=method, params=params):
            common = {
                "mcp.method.name": method,
                "mcp.protocol.version": STATELESS,
                "mcp_django.server": "default",
            }
            assert {**common, **expected} in found
    assert sum(point.count for point in points) == len(rows)
    assert all(tuple(point.explicit_bounds) == DURATION_BOUNDS_SECONDS for point in points)


def test_the_end_of_a_session_is_in_the_histogram(reader: InMemoryMetricReader, db: None) -> None:
    create_call_metrics()
    now = timezone.now()
    session = Session(
        server="default", revision=STATELESS, created=now - timedelta(seconds=90), terminated_at=now, expires=now
    )
    session.send_closed_signal()
    (point,) = read_points(reader, "mcp.server.session.duration")
    assert (point.count, point.sum) == (1, 90)
    assert dict(point.attributes) == {"mcp.protocol.version": STATELESS, "mcp_django.server": "default"}


def test_without_a_provider_nothing_is_recorded_and_the_check_is_rare(monkeypatch: pytest.MonkeyPatch) -> None:
    checks: list[None] = []
    proxy = metrics.NoOpMeterProvider()

    def get_provider() -> Any:
        checks.append(None)
        return proxy

    monkeypatch.setattr(metrics, "get_meter_provider", get_provider)
    recorder = CallMetrics()
    assert [recorder.is_active(now) for now in (1000.0, 1000.5, 1000.9, 1001.0)] == [False] * 4
    assert len(checks) == 2
