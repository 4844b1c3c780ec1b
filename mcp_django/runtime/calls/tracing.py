"""OpenTelemetry tracing: a span for each call, as child of the client's span.

The attributes follow its semantic conventions for the Model Context Protocol (`telemetry_attributes`). Further
attributes hold the principal, the outcome and the reference of a bug. Arguments and results are optional in the
conventions and are not recorded.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextvars import Token
from dataclasses import dataclass
from typing import Any

try:
    from opentelemetry import context, propagate, trace
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
except ImportError:
    IS_INSTALLED = False
else:
    IS_INSTALLED = True

from mcp_django.protocol.errors import MCPError
from mcp_django.protocol.meta import BAGGAGE, TRACEPARENT, TRACESTATE
from mcp_django.protocol.trace_context import find_carrier
from mcp_django.runtime.calls.telemetry_attributes import (
    TARGET_ATTRIBUTES,
    AddressFunction,
    get_client_attributes,
    get_error_description,
    get_error_type,
    get_method_name,
    get_network_attributes,
)
from mcp_django.server.calls.call import Call
from mcp_django.server.calls.log_sanitizer import (
    get_call_id_label,
    get_principal_label,
    get_session_label,
    get_target_label,
    sanitize_label,
)
from mcp_django.server.ports import Outcome, Overloaded

PROVIDER_CHECK_INTERVAL_SECONDS = 1.0
"""Seconds between two checks for a configured tracer provider."""
MAX_FIELD_CHARACTERS = 512
"""Maximum length of fields for propagators other than W3C's, in characters."""
_W3C_FIELDS = frozenset({TRACEPARENT, TRACESTATE, BAGGAGE})


def create_tracer(get_address: AddressFunction | None = None) -> CallTracer | None:
    """Return the tracer of calls, or None if OpenTelemetry is not installed.

    Without `get_address`, spans have no address of the client.
    """
    return CallTracer(get_address) if IS_INSTALLED else None


def get_span_parent() -> str | None:
    """Return the `traceparent` of the running span, for links to it; None without one."""
    if not IS_INSTALLED:
        return None
    carrier: dict[str, str] = {}
    TraceContextTextMapPropagator().inject(carrier)
    return carrier.get(TRACEPARENT)


class CallTracer:
    """Factory of call spans, active as soon as a tracer provider is set."""

    def __init__(self, get_address: AddressFunction | None = None) -> None:
        self._get_address = get_address
        self._tracer: trace.Tracer | None = None
        self._next_check = 0.0

    def create_span(self, call: Call) -> CallSpan | None:
        """Return a span that is not started, or None without a tracer provider."""
        if self._tracer is None:
            # The check reads the process's environment, and the package may be installed for another reason.
            now = call.started_at
            if now < self._next_check:
                return None
            self._next_check = now + PROVIDER_CHECK_INTERVAL_SECONDS
            provider = trace.get_tracer_provider()
            if isinstance(provider, trace.ProxyTracerProvider):
                return None
            self._tracer = provider.get_tracer("mcp_django")
            self._next_check = 0.0
        return CallSpan(self._tracer, call, context.get_current(), self._get_address)


@dataclass(slots=True, eq=False, repr=False)
class CallSpan:
    """Span of one call.

    Created in the context of the transport. Started and finished in the context of the call, where it is the current
    span.
    """

    _tracer: trace.Tracer
    _call: Call
    _transport_context: context.Context
    _get_address: AddressFunction | None
    _is_named: bool = False
    _span: trace.Span | None = None
    _token: Token[context.Context] | None = None

    def start(self) -> None:
        call = self._call
        parent, links = self._find_parent()
        links += _find_linked_spans(call)
        target = get_target_label(call) if call.method in ("tools/call", "prompts/get") else None
        self._is_named = target is None or _is_registered(call)
        span = self._span = self._tracer.start_span(
            " ".join(filter(None, (get_method_name(call), target if self._is_named else None))),
            context=parent,
            kind=trace.SpanKind.SERVER,
            attributes={**_attributes(call), **get_client_attributes(call, self._get_address)},
            links=links,
        )

        span_context = span.get_span_context()
        if span_context.is_valid:
            call.record.trace_id = trace.format_trace_id(span_context.trace_id)
        self._token = context.attach(trace.set_span_in_context(span, parent))

    def finish(self, outcome: Outcome, code: int | None, error: MCPError | Overloaded | None) -> None:
        """End the span, if it was started.

        A mistake of the client is no error of the server: its span has the code, and no error status.
        """
        call, span = self._call, self._span
        if span is None or self._token is None:
            return

        context.detach(self._token)
        span.set_attribute("mcp_django.outcome", outcome.value)
        if not self._is_named and outcome is not Outcome.ERROR:
            # Only after the call is the target known to exist; the number of span names should be small.
            span.update_name(f"{call.method} {get_target_label(call)}")
        if call.record.reference is not None:
            span.set_attribute("mcp_django.reference", call.record.reference)
        if code is not None:
            span.set_attribute("rpc.response.status_code", str(code))
        error_type = get_error_type(outcome, code)
        if error_type is not None:
            span.set_attribute("error.type", error_type)
            span.set_status(trace.StatusCode.ERROR, get_error_description(error))
        span.end()

    def _find_parent(self) -> tuple[context.Context, list[trace.Link]]:
        """Return the parent context and the links of the span.

        The parent is the client's span if `_meta` contains one; the transport's span is linked then. Otherwise the
        parent is the transport's span, or the one in its headers (semantic conventions, context propagation).
        """
        call, headers = self._call, self._call.connection.message_headers
        transport_span = trace.get_current_span(self._transport_context).get_span_context()
        base = self._transport_context
        if headers is not None and not transport_span.is_valid:

            def get_header(name: str) -> Any:
                return headers.get(name)

            base = propagate.extract(_build_carrier(find_carrier({}, headers), get_header), base)
        parent = propagate.extract(_build_carrier(find_carrier(call.meta), call.meta.get), base)
        if not transport_span.is_valid or trace.get_current_span(parent).get_span_context() == transport_span:
            return parent, []
        return parent, [trace.Link(transport_span)]


def _find_linked_spans(call: Call) -> list[trace.Link]:
    """Return a link to the span of the call that this call continues, if any."""
    if call.record.linked_span is None:
        return []
    extracted = TraceContextTextMapPropagator().extract({TRACEPARENT: call.record.linked_span}, context.Context())
    span_context = trace.get_current_span(extracted).get_span_context()
    return [trace.Link(span_context)] if span_context.is_valid else []


def _build_carrier(valid: Mapping[str, str], get_field: Callable[[str], Any]) -> dict[str, str]:
    """Return the validated W3C fields and those of other propagators, such as `b3`.

    The latter must be short and printable, because propagators log unreadable values.
    """
    fields = dict(valid)
    for name in propagate.get_global_textmap().fields - _W3C_FIELDS:
        value = get_field(name)
        if type(value) is str and len(value) <= MAX_FIELD_CHARACTERS and value.isascii() and value.isprintable():
            fields[name] = value
    return fields


def _is_registered(call: Call) -> bool:
    registry, name = call.server.registry, call.params.get("name")
    return (registry.tools if call.method == "tools/call" else registry.prompts).get(str(name)) is not None


def _attributes(call: Call) -> dict[str, str]:
    attributes = {
        "mcp.method.name": sanitize_label(call.method),
        "mcp.protocol.version": call.revision.version,
        "mcp.session.id": get_session_label(call),
        "jsonrpc.request.id": get_call_id_label(call),
        "gen_ai.operation.name": "execute_tool" if call.method == "tools/call" else None,
        "mcp_django.principal": get_principal_label(call),
    }
    if call.method in TARGET_ATTRIBUTES:
        attributes[TARGET_ATTRIBUTES[call.method]] = get_target_label(call)
    return {
        **{name: text for name, text in attributes.items() if text is not None},
        **get_network_attributes(call.connection.network),
    }
