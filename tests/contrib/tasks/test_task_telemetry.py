"""OpenTelemetry of tasks: the span of a job, its link, and the metrics."""

from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from mcp_django.contrib.tasks.worker import WorkerOptions, WorkerProcess
from tests.contrib.tasks.clients import TaskClient
from tests.contrib.tasks.conftest import Gate
from tests.support.telemetry import reader, spans

__all__ = ["reader", "spans"]
pytestmark = pytest.mark.django_db
TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"


def read_points(reader: InMemoryMetricReader) -> dict[tuple[str, str], Any]:
    """The points by metric and status."""
    data = reader.get_metrics_data()
    assert data is not None
    return {
        (metric.name, str((point.attributes or {}).get("mcp_django.task.status", ""))): point
        for resource in data.resource_metrics
        for scope in resource.scope_metrics
        for metric in scope.metrics
        for point in metric.data.data_points
    }


async def test_the_span_of_a_job_is_linked_to_that_of_its_call(
    spans: InMemorySpanExporter, client: TaskClient, gate: Gate, change: Any
) -> None:
    """The job runs in a worker. Both spans are below the client's."""
    change(BACKEND="mcp_django.contrib.tasks.worker.WorkerBackend", BACKEND_OPTIONS={})
    gate.open()
    params = {"name": "wait", "arguments": {}, "_meta": {"traceparent": f"00-{TRACE}-{SPAN}-01"}}
    id = (await client.request("tools/call", params))["taskId"]
    (call,) = spans.get_finished_spans()
    await WorkerProcess(WorkerOptions(is_burst=True)).run()
    job = spans.get_finished_spans()[-1]

    assert (call.name, job.name) == ("tools/call wait", "tools/call wait")
    assert call.links == ()
    (link,) = job.links
    assert link.context == call.context or link.context.span_id == call.context.span_id
    for span in (call, job):
        assert span.parent is not None
        assert trace.format_span_id(span.parent.span_id) == SPAN
    assert (job.attributes or {})["jsonrpc.request.id"] == id


async def test_metrics_count_tasks_by_status(reader: InMemoryMetricReader, client: TaskClient, gate: Gate) -> None:
    gate.open()
    await client.until((await client.start("wait"))["taskId"])
    await client.until((await client.start("export", kind="protocol"))["taskId"])
    await client.until((await client.start("export", kind="internal"))["taskId"])
    points = read_points(reader)
    attributes = {"mcp_django.server": "long_jobs", "gen_ai.tool.name": "export"}
    assert points["mcp_django.tasks.created", ""].attributes == attributes
    assert [points["mcp_django.tasks.duration", status].count for status in ("completed", "failed")] == [1, 2]
    assert points["mcp_django.tasks.attempts", "failed"].value == 2
