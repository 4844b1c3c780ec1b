"""OpenTelemetry metrics of a server: durations of its operations and sessions.

- `mcp.server.operation.duration`: seconds from a request or notification to its result, a stream included
- `mcp.server.session.duration`: seconds from the opening of a session to its end, by the process that ends it

Names, buckets and attributes are those of the semantic conventions (`telemetry_attributes`). Only names of primitives
that a call found become attributes, so a client cannot create time series.
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

try:
    from opentelemetry import metrics
except ImportError:
    IS_INSTALLED = False
else:
    IS_INSTALLED = True

from django.utils import timezone

from mcp_django.runtime.calls.telemetry_attributes import (
    TARGET_ATTRIBUTES,
    get_error_type,
    get_method_name,
    get_network_attributes,
)
from mcp_django.server.calls.call import Call, NetworkInfo
from mcp_django.server.calls.log_sanitizer import sanitize_label
from mcp_django.server.ports import Outcome
from mcp_django.signals import session_closed

UID = "mcp_django.runtime.calls.metrics"
DURATION_BOUNDS_SECONDS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60, 120, 300)
"""Bounds of the buckets of durations, as the conventions give them."""
PROVIDER_CHECK_INTERVAL_SECONDS = 1.0
"""Seconds between two checks for a configured meter provider."""
MAX_CACHED_ATTRIBUTES = 4096
"""Maximum number of sets of attributes that a process keeps for further calls."""
MEASURED_TARGETS = frozenset({"tools/call", "prompts/get"})
"""Methods whose target is an attribute. URIs of resources would be too many time series."""
API_MODULE = "opentelemetry.metrics"
"""Module of the API. Its own providers record nothing: they are in place until a provider is set."""


class ServerInstruments(NamedTuple):
    """Instruments of one meter provider."""

    operations: metrics.Histogram
    sessions: metrics.Histogram


def create_call_metrics() -> CallMetrics | None:
    """Return the metrics of calls, or None if OpenTelemetry is not installed.

    The durations of sessions are recorded from now on, too.
    """
    if not IS_INSTALLED:
        return None
    session_closed.connect(_on_session_closed, dispatch_uid=UID)
    return CallMetrics()


class CallMetrics:
    """Recorder of the durations of calls, active as soon as a meter provider is set."""

    def __init__(self) -> None:
        self._instruments: ServerInstruments | None = None
        self._next_check = 0.0

    def is_active(self, now: float) -> bool:
        """Return True if a meter provider is set. `now` is a time of `time.perf_counter`."""
        if self._instruments is not None:
            return True
        if now < self._next_check:
            return False
        self._next_check = now + PROVIDER_CHECK_INTERVAL_SECONDS
        self._instruments = find_instruments()
        return self._instruments is not None

    def record_call(self, call: Call, outcome: Outcome, code: int | None) -> None:
        """Record the duration of a finished call."""
        if self._instruments is not None:
            self._instruments.operations.record(call.duration, _get_attributes(call, outcome, code))


def find_instruments() -> ServerInstruments | None:
    """Return the instruments of the configured meter provider, or None without one."""
    provider = metrics.get_meter_provider()
    if type(provider).__module__.startswith(API_MODULE):
        return None
    return _create_instruments(provider)


@functools.lru_cache(maxsize=4)
def _create_instruments(provider: metrics.MeterProvider) -> ServerInstruments:
    meter = provider.get_meter("mcp_django")
    return ServerInstruments(
        meter.create_histogram(
            "mcp.server.operation.duration",
            unit="s",
            description="MCP request or notification duration as observed on the receiver from the time it was "
            "received until the result or ack is sent.",
            explicit_bucket_boundaries_advisory=DURATION_BOUNDS_SECONDS,
        ),
        meter.create_histogram(
            "mcp.server.session.duration",
            unit="s",
            description="The duration of the MCP session as observed on the MCP server.",
            explicit_bucket_boundaries_advisory=DURATION_BOUNDS_SECONDS,
        ),
    )


def _get_attributes(call: Call, outcome: Outcome, code: int | None) -> dict[str, str]:
    """Return the attributes of a call.

    Calls with equal attributes share one dict, which must not be changed.
    """
    network, method = call.connection.network, get_method_name(call)
    measured = MeasuredCall(
        method,
        call.revision.version,
        call.server.alias,
        # Without the address of the peer, which differs between clients.
        None if network is None else (network.transport, network.protocol, network.version),
        call.record.target if method in MEASURED_TARGETS else None,
        code,
        None if outcome is Outcome.OK else get_error_type(outcome, code),
    )
    return _build_attributes(measured)


class MeasuredCall(NamedTuple):
    """Properties of calls that their attributes depend on."""

    method: str
    version: str
    server: str
    network: tuple[str, str | None, str | None] | None
    target: str | None
    code: int | None
    error_type: str | None


@functools.lru_cache(maxsize=MAX_CACHED_ATTRIBUTES)
def _build_attributes(measured: MeasuredCall) -> dict[str, str]:
    attributes = {
        "mcp.method.name": measured.method,
        "mcp.protocol.version": measured.version,
        "mcp_django.server": measured.server,
        **get_network_attributes(None if measured.network is None else NetworkInfo(*measured.network)),
    }
    if measured.target is not None:
        attributes[TARGET_ATTRIBUTES[measured.method]] = sanitize_label(measured.target)
    if measured.method == "tools/call":
        attributes["gen_ai.operation.name"] = "execute_tool"
    if measured.code is not None:
        attributes["rpc.response.status_code"] = str(measured.code)
    if measured.error_type is not None:
        attributes["error.type"] = measured.error_type
    return attributes


def _on_session_closed(session: Any, **kwargs: Any) -> None:
    instruments = find_instruments()
    if instruments is not None:
        seconds = ((session.terminated_at or timezone.now()) - session.created).total_seconds()
        attributes = {"mcp.protocol.version": session.revision, "mcp_django.server": session.server}
        instruments.sessions.record(max(seconds, 0), attributes)
