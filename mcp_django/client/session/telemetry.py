"""OpenTelemetry of the client: a span and a duration for each request, and the durations of sessions.

- spans of kind CLIENT with the name `{method} {tool or prompt}`. The SDK writes the context of its own span below them
  into `_meta`, so the spans of the server continue the same trace
- `mcp.client.operation.duration`: seconds of a request, retries and the wait for a connection included
- `mcp.client.session.duration`: seconds of a connection

The attributes are those of the semantic conventions for MCP
(https://github.com/open-telemetry/semantic-conventions-genai, `docs/gen-ai/mcp.md`). Arguments and results are not
recorded. Without a provider, the API's spans and instruments do nothing.
"""

import asyncio
import functools
import time
from collections.abc import Mapping
from contextvars import Token
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from opentelemetry import context, metrics, trace

from mcp_django.client.errors import CallError, CallTimeout
from mcp_django.protocol.display_text import escape_invisible

DURATION_BOUNDS_SECONDS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60, 120, 300)
"""Bounds of the buckets of durations, as the conventions give them."""
MAX_NAME_CHARACTERS = 128
TARGET_ATTRIBUTES = {"tools/call": "gen_ai.tool.name", "prompts/get": "gen_ai.prompt.name"}
RESOURCE_METHODS = frozenset({"resources/read", "resources/subscribe", "resources/unsubscribe"})
PORTS = {"https": 443, "wss": 443, "http": 80, "ws": 80}
PROTOCOLS = {"https": "http", "wss": "websocket", "http": "http", "ws": "websocket"}


class ClientInstruments(NamedTuple):
    """Instruments of one meter provider."""

    operations: metrics.Histogram
    sessions: metrics.Histogram


class ClientTelemetry:
    """Spans and metrics of one client."""

    def __init__(self, target: Any) -> None:
        self._attributes = _get_target_attributes(target)

    def start_operation(self, method: str, params: Mapping[str, Any]) -> "ClientOperation":
        """Start the span of a request, as the current span of this task."""
        return ClientOperation(method, params, self._attributes)

    def record_session(self, seconds: float, version: str, error: BaseException | None) -> None:
        """Record the duration of a connection that has ended."""
        attributes = {**self._attributes, "mcp.protocol.version": version}
        if error is not None:
            attributes["error.type"] = type(error).__qualname__
        _create_instruments(metrics.get_meter_provider()).sessions.record(seconds, attributes)


class ClientOperation:
    """A running request."""

    def __init__(self, method: str, params: Mapping[str, Any], target: Mapping[str, str | int]) -> None:
        self._started_at = time.perf_counter()
        self._attributes: dict[str, str | int] = {"mcp.method.name": method, **target}
        name = params.get("name") if method in TARGET_ATTRIBUTES else None
        if isinstance(name, str):
            name = escape_invisible(name[:MAX_NAME_CHARACTERS])
            self._attributes[TARGET_ATTRIBUTES[method]] = name
        if method == "tools/call":
            self._attributes["gen_ai.operation.name"] = "execute_tool"

        self._span = (
            trace.get_tracer_provider()
            .get_tracer("mcp_django")
            .start_span(
                f"{method} {name}" if name else method,
                kind=trace.SpanKind.CLIENT,
                attributes={**self._attributes, **_get_resource_attributes(method, params)},
            )
        )
        self._token: Token[context.Context] = context.attach(trace.set_span_in_context(self._span))

    def set_revision(self, version: str) -> None:
        """Record the negotiated revision."""
        self._set("mcp.protocol.version", version)

    def set_result(self, result: Mapping[str, Any]) -> None:
        """Record a result: a tool may have failed."""
        if result.get("isError") is True:
            self._set("error.type", "tool_error")
            self._span.set_status(trace.StatusCode.ERROR)

    def finish(self, error: BaseException | None) -> None:
        """End the span, and record the duration. A cancellation is no error."""
        context.detach(self._token)
        if isinstance(error, CallError):
            self._set("rpc.response.status_code", str(error.code))
            self._set("error.type", str(error.code))
            self._span.set_status(trace.StatusCode.ERROR, error.message)
        elif error is not None and not isinstance(error, asyncio.CancelledError):
            self._set("error.type", "timeout" if isinstance(error, CallTimeout) else type(error).__qualname__)
            self._span.set_status(trace.StatusCode.ERROR)
        self._span.end()
        seconds = time.perf_counter() - self._started_at
        _create_instruments(metrics.get_meter_provider()).operations.record(seconds, self._attributes)

    def _set(self, name: str, value: str) -> None:
        self._attributes[name] = value
        self._span.set_attribute(name, value)


@functools.lru_cache(maxsize=4)
def _create_instruments(provider: metrics.MeterProvider) -> ClientInstruments:
    meter = provider.get_meter("mcp_django")
    return ClientInstruments(
        meter.create_histogram(
            "mcp.client.operation.duration",
            unit="s",
            description="The duration of the MCP request or notification as observed on the sender from the time it "
            "was sent until the response or ack is received.",
            explicit_bucket_boundaries_advisory=DURATION_BOUNDS_SECONDS,
        ),
        meter.create_histogram(
            "mcp.client.session.duration",
            unit="s",
            description="The duration of the MCP session as observed on the MCP client.",
            explicit_bucket_boundaries_advisory=DURATION_BOUNDS_SECONDS,
        ),
    )


def _get_resource_attributes(method: str, params: Mapping[str, Any]) -> dict[str, str]:
    """Return the URI of a resource, without the parts that can hold secrets, for spans only."""
    uri = params.get("uri") if method in RESOURCE_METHODS else None
    if not isinstance(uri, str):
        return {}
    scheme, separator, rest = uri.partition("?")[0].partition("#")[0].partition("//")
    authority, slash, path = rest.partition("/")
    shown = f"{scheme}{separator}{authority.rpartition('@')[2]}{slash}{path}"
    return {"mcp.resource.uri": escape_invisible(shown[:MAX_NAME_CHARACTERS])}


def _get_target_attributes(target: Any) -> dict[str, str | int]:
    """Return the network of a target: host and port of a URL, or a pipe for a program."""
    url = getattr(target, "url", None)
    if not isinstance(url, str):
        return {"network.transport": "pipe"} if hasattr(target, "command") else {}
    parts = urlsplit(url)
    attributes: dict[str, str | int] = {"network.transport": "tcp"}
    if parts.scheme in PROTOCOLS:
        attributes["network.protocol.name"] = PROTOCOLS[parts.scheme]
    if parts.hostname:
        attributes["server.address"] = parts.hostname
        attributes["server.port"] = parts.port or PORTS.get(parts.scheme, 0)
    return attributes
