"""Trace context: ``traceparent``, ``tracestate`` and ``baggage`` of W3C.

The formats are those of W3C Trace Context and W3C Baggage. The values are sent in ``_meta`` (2026-07-28, basic,
OpenTelemetry trace context) and in HTTP headers with the same names. Malformed values are ignored: a new trace starts,
without an error (W3C Trace Context, 3.2.2 and 3.3.1).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any
from urllib.parse import unquote

from mcp_django.protocol.headers import TOKEN_PATTERN, Headers
from mcp_django.protocol.meta import BAGGAGE, TRACEPARENT, TRACESTATE

MAX_STATE_MEMBERS = 32
MAX_STATE_LENGTH = 512
"""Maximum length of a ``tracestate`` in characters.

The specification requires to pass on at least as many.
"""
MAX_BAGGAGE_LENGTH = 8192
"""Maximum size of a ``baggage`` in bytes, with the same requirement."""

_PARENT = re.compile(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-[\x20-\x7e]*)?")
_PARENT_LENGTH = 512
_STATE_KEY = r"[a-z][a-z0-9_*/-]{0,255}|[a-z0-9][a-z0-9_*/-]{0,240}@[a-z][a-z0-9_*/-]{0,13}"
_STATE_MEMBER = re.compile(rf"({_STATE_KEY})=[\x20-\x2b\x2d-\x3c\x3e-\x7e]{{0,255}}[\x21-\x2b\x2d-\x3c\x3e-\x7e]")
_OCTETS = r"[\x21\x23-\x2b\x2d-\x3a\x3c-\x5b\x5d-\x7e]*"
_BLANK = r"[ \t]*"
_PROPERTY = rf"{_BLANK};{_BLANK}{TOKEN_PATTERN.pattern}(?:{_BLANK}={_BLANK}{_OCTETS})?"
_BAGGAGE_MEMBER = re.compile(rf"({TOKEN_PATTERN.pattern}){_BLANK}={_BLANK}({_OCTETS})(?:{_PROPERTY})*")
_SAMPLED, _RANDOM = 1, 2
_NAMES = (TRACEPARENT, TRACESTATE, BAGGAGE)
_KEYS = frozenset(name.encode() for name in _NAMES)
_NO_BAGGAGE: Mapping[str, str] = MappingProxyType({})


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceContext:
    """The trace of a request, as declared by its sender."""

    trace_id: str
    """Trace id: 32 hexadecimal digits."""
    span_id: str
    """Span id: 16 hexadecimal digits. The sender's span is the parent of new spans."""
    flags: int = 0
    state: str = ""
    """Data of tracing systems: a ``tracestate``."""
    baggage: Mapping[str, str] = field(default_factory=lambda: _NO_BAGGAGE)
    """Decoded data that the sender passes to all recipients.

    It is not verified: do not base decisions on it.
    """
    carried: str = field(default="", repr=False)
    """Original text of the ``baggage``."""

    @property
    def sampled(self) -> bool:
        """True if the sender may have recorded this trace."""
        return bool(self.flags & _SAMPLED)

    def headers(self) -> dict[str, str]:
        """Return the HTTP headers that continue this trace in another request."""
        headers = {TRACEPARENT: f"00-{self.trace_id}-{self.span_id}-{self.flags:02x}"}
        if self.state:
            headers[TRACESTATE] = self.state
        if self.carried:
            headers[BAGGAGE] = self.carried
        return headers

    def meta(self) -> dict[str, str]:
        """Return the keys of ``_meta`` that continue this trace in another MCP request."""
        return self.headers()


def find_carrier(meta: Mapping[str, Any], headers: Headers | None = None) -> dict[str, str]:
    """Return the valid trace values of a message by name.

    ``_meta`` belongs to the message. The headers belong to the HTTP request, which a proxy may have sent. Therefore
    ``_meta`` takes precedence, and a ``tracestate`` is used only with its own ``traceparent``.
    """
    found: dict[str, str] = {}
    if headers is not None and not _KEYS.isdisjoint(headers.wire):
        found = _valid(*(_header(headers, name) for name in _NAMES))
    said = _valid(meta.get(TRACEPARENT), meta.get(TRACESTATE), meta.get(BAGGAGE))
    if TRACEPARENT in said:
        found.pop(TRACESTATE, None)
    return {**found, **said}


def _header(headers: Headers, name: str) -> str | None:
    key = name.encode()
    value = headers.wire.get(key)
    if value is None or (name == TRACEPARENT and key in headers.repeated):
        return None
    return value.decode("latin-1").strip(" \t")


def _valid(parent: Any, state: Any, baggage: Any) -> dict[str, str]:
    found = {}
    if type(parent) is str and parse_parent(parent) is not None:
        found[TRACEPARENT] = parent
        if type(state) is str and is_state(state):
            found[TRACESTATE] = state
    if type(baggage) is str and parse_baggage(baggage) is not None:
        found[BAGGAGE] = baggage
    return found


def parse(carried: Mapping[str, str]) -> TraceContext | None:
    """Parse the values of `find_carrier`. Returns None without a ``traceparent``."""
    parent = parse_parent(carried.get(TRACEPARENT, ""))
    if parent is None:
        return None
    trace_id, span_id, flags = parent
    baggage = carried.get(BAGGAGE, "")
    return TraceContext(
        trace_id=trace_id,
        span_id=span_id,
        flags=flags,
        state=carried.get(TRACESTATE, ""),
        baggage=MappingProxyType(parse_baggage(baggage) or {}),
        carried=baggage,
    )


def parse_parent(text: str) -> tuple[str, str, int] | None:
    """Parse a ``traceparent`` into trace id, span id and flags, or None if malformed.

    Version 00 is parsed strictly. Of later versions, the common parts and one flag are read (W3C Trace Context, 4.3).
    """
    found = _PARENT.fullmatch(text) if len(text) <= _PARENT_LENGTH else None
    if found is None:
        return None
    version, trace_id, span_id, flags, more = found.groups()
    if version == "ff" or (version == "00" and more) or not (trace_id.strip("0") and span_id.strip("0")):
        return None
    return trace_id, span_id, int(flags, 16) & (_SAMPLED | _RANDOM if version == "00" else _SAMPLED)


def is_state(text: str) -> bool:
    """Return True for a valid ``tracestate`` within the limits.

    The limits are 32 members and 512 characters, with unique keys.
    """
    if len(text) > MAX_STATE_LENGTH:
        return False
    keys = []
    for member in text.split(","):
        member = member.strip(" \t")
        if member:  # 3.3.1.1: empty members are allowed
            found = _STATE_MEMBER.fullmatch(member)
            if found is None:
                return False
            keys.append(found[1])
    return 0 < len(keys) <= MAX_STATE_MEMBERS and len(set(keys)) == len(keys)


def parse_baggage(text: str) -> dict[str, str] | None:
    """Parse the entries of a ``baggage``, percent-decoded, without their properties.

    Returns None if it is malformed or longer than 8192 bytes.
    """
    if not text or len(text) > MAX_BAGGAGE_LENGTH:
        return None
    entries = {}
    for member in text.split(","):
        found = _BAGGAGE_MEMBER.fullmatch(member.strip(" \t"))
        if found is None:
            return None
        entries[found[1]] = unquote(found[2], errors="replace")
    return entries
