"""Headers of the stateless era that mirror the body: routing and ``Mcp-Param-*``.

Names are lower-case bytes and values are bytes, as in ASGI. The version and method headers are never encoded. A name or
parameter may be encoded as ``=?base64?…?=`` (transports/streamable-http, standard headers and x-mcp-header).
"""

from __future__ import annotations

import base64
import binascii
import re
from collections import Counter
from collections.abc import Iterable
from decimal import Decimal
from typing import Any, NamedTuple

from mcp_django.protocol.errors import HeaderMismatch

PROTOCOL_VERSION = b"mcp-protocol-version"
METHOD_HEADER = b"mcp-method"
NAME_HEADER = b"mcp-name"
SESSION_ID = b"mcp-session-id"
LAST_EVENT_ID = b"last-event-id"
PARAM_PREFIX = b"mcp-param-"

ROUTING = frozenset({PROTOCOL_VERSION, METHOD_HEADER, NAME_HEADER})

NAMED_PARAMS = {"tools/call": "name", "prompts/get": "name", "resources/read": "uri"}
"""Method to the parameter that its ``Mcp-Name`` header mirrors."""

TOKEN_PATTERN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
"""Pattern of a header's name (RFC 9110, section 5.6.2)."""

_PREFIX, _SUFFIX = b"=?base64?", b"?="
_LEGAL = re.compile(rb"[\t\x20-\x7e]*")
_PLAIN = re.compile(r"(?:[\x21-\x7e](?:[\x20-\x7e]*[\x21-\x7e])?)?")
_NUMBER = re.compile(r"-?[0-9]{1,40}(?:\.[0-9]{1,40})?(?:[eE][+-]?[0-9]{1,2})?")


_NONE: frozenset[bytes] = frozenset()
_LISTS = {b"baggage": b",", b"tracestate": b",", b"x-forwarded-for": b",", b"cookie": b"; "}


class Headers(dict[bytes, bytes]):
    """The last value of each header by lower-case name.

    `repeated` holds the names that occurred more than once. Repeated headers in `_LISTS`, the list headers in use, are
    joined (RFC 9110, section 5.3).
    """

    __slots__ = ("repeated",)

    repeated: frozenset[bytes]

    def __init__(self, pairs: Iterable[tuple[bytes, bytes]] = ()) -> None:
        pairs = list(pairs)
        super().__init__(pairs)
        if len(self) == len(pairs):
            self.repeated = _NONE
        else:
            names = Counter(name for name, _ in pairs)
            self.repeated = frozenset(name for name, times in names.items() if times > 1)
            for repeated in self.repeated & _LISTS.keys():
                self[repeated] = _LISTS[repeated].join(value for name, value in pairs if name == repeated)


class HeaderParam(NamedTuple):
    """A tool argument that the client mirrors in a header."""

    path: tuple[str, ...]
    """Property names from the root of the arguments."""
    header: bytes
    """Full header name in lower case, including ``mcp-param-``."""


def encode_value(text: str) -> bytes:
    """Encode `text` as a header value, in base64 if plain text is unsafe.

    Raises:
        ValueError: `text` holds lone surrogates.
    """
    if _PLAIN.fullmatch(text) and not (text.startswith("=?base64?") and text.endswith("?=")):
        return text.encode("ascii")
    return _PREFIX + base64.b64encode(text.encode()) + _SUFFIX


def decode_value(value: bytes) -> str:
    """Decode a header value: strip blanks at both ends, and decode base64.

    Raises:
        HeaderMismatch: an illegal byte, or malformed base64.
    """
    text = value.strip(b" \t")
    if not _LEGAL.fullmatch(text):
        raise HeaderMismatch("Header mismatch: a value holds bytes that are illegal in headers")
    if not (text.startswith(_PREFIX) and text.endswith(_SUFFIX) and len(text) >= len(_PREFIX) + len(_SUFFIX)):
        return text.decode("ascii")

    payload = text[len(_PREFIX) : -len(_SUFFIX)]
    try:
        raw = base64.b64decode(payload, validate=True)
        # b64decode tolerates surplus padding. Only the canonical encoding is accepted.
        if base64.b64encode(raw) == payload:
            return raw.decode()
    except (binascii.Error, UnicodeDecodeError):
        pass
    raise HeaderMismatch("Header mismatch: a value is not base64 of UTF-8 text, padded and in the standard alphabet")


def check_routing(headers: Headers, version: str, method: str, name: str | None) -> None:
    """Check that the routing headers equal the body's values.

    `name` is None for methods without a name.

    Raises:
        HeaderMismatch: missing, repeated, malformed or different; the message names the header.
    """
    if headers.repeated and not headers.repeated.isdisjoint(ROUTING):
        raise HeaderMismatch("Header mismatch: a routing header was sent more than once")
    # Equal bytes are the usual case. Other values are decoded first.
    got = headers.get(PROTOCOL_VERSION)
    if got is None or (got != version.encode() and got.strip(b" \t") != version.encode()):
        raise _mismatch("MCP-Protocol-Version", got, "the protocol version in params._meta")

    got = headers.get(METHOD_HEADER)
    if got is None or (got != method.encode() and got.strip(b" \t") != method.encode()):
        raise _mismatch("Mcp-Method", got, "the method")

    if name is not None:
        got = headers.get(NAME_HEADER)
        if got is None or not (_is_plainly(got, name) or decode_value(got) == name):
            raise _mismatch("Mcp-Name", got, f"params.{NAMED_PARAMS.get(method, 'name')}")


def check_name(headers: Headers, name: str, mirrored: str) -> None:
    """Check that the name header, if it was sent, equals the body's value.

    `mirrored` describes the value, for the message.

    Raises:
        HeaderMismatch: malformed or different.
    """
    got = headers.get(NAME_HEADER)
    if got is not None and not (_is_plainly(got, name) or decode_value(got) == name):
        raise _mismatch("Mcp-Name", got, mirrored)


def _is_plainly(got: bytes, name: str) -> bool:
    # Equal bytes are not enough: they may be illegal in a header, or the encoded form of another name.
    return got == name.encode() and name.isascii() and name.isprintable() and not got.startswith(_PREFIX)


def _mismatch(header: str, got: bytes | None, mirrored: str) -> HeaderMismatch:
    if got is None:
        return HeaderMismatch(f"Header mismatch: {header} is missing; it repeats {mirrored}")
    return HeaderMismatch(f"Header mismatch: {header} differs from {mirrored}")


def check_params(headers: Headers, params: tuple[HeaderParam, ...], arguments: dict[str, Any]) -> None:
    """Check the parameter headers of a tool call against its arguments.

    Each mirrored argument must equal its header, and each header needs its argument.

    Raises:
        HeaderMismatch: missing, surplus, repeated, malformed or different; the message names the header.
    """
    for path, header in params:
        value: Any = arguments
        for step in path:
            value = value.get(step) if type(value) is dict else None

        got = headers.get(header)
        if got is None and value is None:
            continue

        name, mirrored = header.decode("ascii"), "arguments." + ".".join(path)
        if value is None:
            raise HeaderMismatch(f"Header mismatch: {name} was sent, but {mirrored} is absent or null")
        if header in headers.repeated:
            raise HeaderMismatch(f"Header mismatch: {name} was sent more than once")
        if got is None or not _mirrors(decode_value(got), value):
            raise _mismatch(name, got, mirrored)


def _mirrors(text: str, value: Any) -> bool:
    if type(value) is str:
        return text == value
    if type(value) is bool:
        return text == ("true" if value else "false")
    if type(value) is int or type(value) is float:
        # Integers are compared as numbers: 42 equals 42.0.
        return _NUMBER.fullmatch(text) is not None and Decimal(text) == value
    return False
