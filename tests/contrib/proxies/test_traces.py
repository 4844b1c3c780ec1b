"""A trace from the client through a proxy to the remote server."""

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from mcp_django.runtime.calls.observer import SignalCallObserver
from mcp_django.runtime.calls.tracing import create_tracer
from tests.server.client import PipelineClient, make_server, ports

from .remote import Remote, proxy_of

TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"


@pytest.fixture
def exporter(monkeypatch: pytest.MonkeyPatch) -> InMemorySpanExporter:
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(trace, "get_tracer_provider", lambda: provider)
    return exporter


async def test_a_proxied_call_is_one_trace_from_the_client_to_the_remote(exporter: InMemorySpanExporter) -> None:
    server, outside = make_server(providers=[proxy_of(Remote())]), ports()
    server.bind(ports(executor=outside.executor, observer=SignalCallObserver(outside.executor, create_tracer())))
    meta = {"traceparent": f"00-{TRACE}-{SPAN}-01"}
    client = PipelineClient(server)
    await client.request("tools/call", {"name": "r__add", "arguments": {"a": 1}, "_meta": meta})

    spans = {(span.name, span.kind): span for span in exporter.get_finished_spans()}
    received, sent = spans["tools/call r__add", trace.SpanKind.SERVER], spans["tools/call add", trace.SpanKind.CLIENT]
    assert received.parent is not None
    assert trace.format_span_id(received.parent.span_id) == SPAN
    assert sent.parent == received.context
