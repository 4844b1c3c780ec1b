"""OpenTelemetry tracing: a span for each call, as child of the client's span.

This is the only module that imports OpenTelemetry. The attributes follow its semantic conventions for the Model Context
Protocol (https://opentelemetry.io/docs/specs/semconv/gen-ai/mcp/, server spans). Further attributes hold the principal,
the outcome and the reference of a bug. Arguments and results are optional in the conventions and are not recorded.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextvars import Token
from typing import Any

try:
    from opentelemetry import context, propagate, trace
except ImportError:
    INSTALLED = False
else:
    INSTALLED = True

from mcp_django.protocol.meta import BAGGAGE, TRACEPARENT, TRACESTATE
from mcp_django.protocol.trace_context import carrier
from mcp_django.server.calls.call import Call
from mcp_django.server.calls.log_sanitizer import call_id_of, label, principal_of, session_of, target_of
from mcp_django.server.calls.outcome import Outcome

LOOK_EVERY = 1.0
"""Seconds between two checks for a configured tracer provider."""
FIELD_LENGTH = 512
"""Maximum length of fields for propagators other than W3C's, in characters."""
NAMES = {"tools/call": "gen_ai.tool.name", "prompts/get": "gen_ai.prompt.name", "resources/read": "mcp.resource.uri"}
UNKNOWN_METHOD = "_OTHER"
_W3C = frozenset({TRACEPARENT, TRACESTATE, BAGGAGE})
_FINE = frozenset({Outcome.OK, Outcome.INPUT_REQUIRED, Outcome.CANCELLED})


def find_tracing() -> Tracing | None:
    """Return the tracer of calls, or None if OpenTelemetry is not installed."""
    return Tracing() if INSTALLED else None


class Tracing:
    """Factory of call spans, active as soon as a tracer provider is set."""

    def __init__(self) -> None:
        self._tracer: trace.Tracer | None = None
        self._next_look = 0.0

    def attend(self, call: Call) -> CallSpan | None:
        """Return a span that is not started, or None without a tracer provider."""
        if self._tracer is None:
            # The check reads the process's environment, and the package may be installed for another reason.
            now = call.started
            if now < self._next_look:
                return None
            self._next_look = now + LOOK_EVERY
            provider = trace.get_tracer_provider()
            if isinstance(provider, trace.ProxyTracerProvider):
                return None
            self._tracer, self._next_look = provider.get_tracer("mcp_django"), 0.0
        return CallSpan(self._tracer, call)


class CallSpan:
    """Span of one call.

    Created in the context of the transport. Started and finished in the context of the call, where it is the current
    span.
    """

    __slots__ = ("_call", "_named", "_outer", "_span", "_token", "_tracer")

    def __init__(self, tracer: trace.Tracer, call: Call) -> None:
        self._tracer, self._call = tracer, call
        self._outer = context.get_current()
        self._named = False
        self._span: trace.Span | None = None
        self._token: Token[context.Context] | None = None

    def begin(self) -> None:
        call = self._call
        parent, links = self._parent()
        known = call.method in call.revision.methods
        target = target_of(call) if call.method in ("tools/call", "prompts/get") else None
        self._named = target is None or _is_registered(call)
        span = self._span = self._tracer.start_span(
            " ".join(filter(None, (call.method if known else UNKNOWN_METHOD, target if self._named else None))),
            context=parent,
            kind=trace.SpanKind.SERVER,
            attributes=_attributes(call),
            links=links,
        )

        own = span.get_span_context()
        if own.is_valid:
            call.fate.trace_id = trace.format_trace_id(own.trace_id)
        self._token = context.attach(trace.set_span_in_context(span, parent))

    def end(self, outcome: Outcome, code: int | None) -> None:
        """End the span, if it was started."""
        call, span = self._call, self._span
        if span is None or self._token is None:
            return

        context.detach(self._token)
        span.set_attribute("mcp_django.outcome", outcome.value)
        if not self._named and outcome is not Outcome.ERROR:
            # Only after the call is the target known to exist; the number of span names should be small.
            span.update_name(f"{call.method} {target_of(call)}")
        if call.fate.reference is not None:
            span.set_attribute("mcp_django.reference", call.fate.reference)
        if code is not None:
            span.set_attribute("rpc.response.status_code", str(code))
        if outcome not in _FINE:
            span.set_attribute("error.type", "tool_error" if code is None else str(code))
            span.set_status(trace.StatusCode.ERROR)
        span.end()

    def _parent(self) -> tuple[context.Context, list[trace.Link]]:
        """Return the parent context and the links of the span.

        The parent is the client's span if `_meta` contains one; the transport's span is linked then. Otherwise the
        parent is the transport's span, or the one in its headers (semantic conventions, context propagation).
        """
        call, headers = self._call, self._call.connection.own_headers
        around = trace.get_current_span(self._outer).get_span_context()
        base = self._outer
        if headers is not None and not around.is_valid:

            def header(name: str) -> Any:
                value = headers.get(name.lower().encode())
                return None if value is None else value.decode("latin-1")

            base = propagate.extract(_carrier(carrier({}, headers), header), base)
        parent = propagate.extract(_carrier(carrier(call.meta), call.meta.get), base)
        if not around.is_valid or trace.get_current_span(parent).get_span_context() == around:
            return parent, []
        return parent, [trace.Link(around)]


def _carrier(valid: Mapping[str, str], other: Callable[[str], Any]) -> dict[str, str]:
    """Return the validated W3C fields and those of other propagators, such as `b3`.

    The latter must be short and printable, because propagators log unreadable values.
    """
    found = dict(valid)
    for name in propagate.get_global_textmap().fields - _W3C:
        text = other(name)
        if type(text) is str and len(text) <= FIELD_LENGTH and text.isascii() and text.isprintable():
            found[name] = text
    return found


def _is_registered(call: Call) -> bool:
    registry, name = call.server.registry, call.params.get("name")
    return (registry.tools if call.method == "tools/call" else registry.prompts).get(str(name)) is not None


def _attributes(call: Call) -> dict[str, str]:
    found = {
        "mcp.method.name": label(call.method),
        "mcp.protocol.version": call.revision.version,
        "mcp.session.id": session_of(call),
        "jsonrpc.request.id": call_id_of(call),
        "gen_ai.operation.name": "execute_tool" if call.method == "tools/call" else None,
        "mcp_django.principal": principal_of(call),
    }
    if call.method in NAMES:
        found[NAMES[call.method]] = target_of(call)
    if call.connection.headers is not None:
        found |= {"network.transport": "tcp", "network.protocol.name": "http"}
    return {name: text for name, text in found.items() if text is not None}
