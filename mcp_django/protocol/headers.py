"""Headers of a request, and those of the stateless era that mirror the body.

The latter are routing headers and ``Mcp-Param-*``. Constants are lower-case bytes, as in ASGI. The version and method
headers are never encoded. A name or parameter may be encoded as ``=?base64?…?=`` (transports/streamable-http, standard
headers and x-mcp-header).
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
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


class Headers(Mapping[str, str]):
    """Headers of a request: text by name, in any case, as in Django's `request.headers`.

        request.headers["X-Tenant"] == request.headers["x-tenant"]

    A name that is not text raises TypeError, in `get` and `in` as well. Values of a header that was sent more than once
    are joined by a comma, cookies by a semicolon (RFC 9110, section 5.3; RFC 9113, section 8.2.3).
    """

    __slots__ = ("repeated", "wire")

    wire: dict[bytes, bytes]
    """Values by lower-case name, as they were received.

    This package reads some of them for each request.
    """
    repeated: frozenset[bytes]
    """Names that were sent more than once, as in `wire`."""

    def __init__(self, pairs: Iterable[tuple[bytes, bytes]] = ()) -> None:
        """Take pairs of lower-case name and value, as in ASGI."""
        pairs = list(pairs)
        self.wire = wire = dict(pairs)
        if len(wire) == len(pairs):
            self.repeated = _NONE
            return
        values: dict[bytes, list[bytes]] = {}
        for name, value in pairs:
            values.setdefault(name, []).append(value)
        self.repeated = frozenset(name for name, found in values.items() if len(found) > 1)
        for name in self.repeated:
            wire[name] = (b"; " if name == b"cookie" else b",").join(values[name])

    @classmethod
    def from_text(cls, headers: Mapping[str, str]) -> Headers:
        """Create headers from text, as tests of a project have them."""
        return cls((name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in headers.items())

    def without(self, names: Collection[bytes]) -> Headers:
        """Return the headers without those of these lower-case names."""
        return Headers((name, value) for name, value in self.wire.items() if name not in names)

    def __getitem__(self, name: str) -> str:
        if not isinstance(name, str):
            raise TypeError(f"Names of headers are text: write 'x-tenant', not {name!r}")
        try:
            return self.wire[name.lower().encode("latin-1")].decode("latin-1")
        except (KeyError, UnicodeEncodeError):
            raise KeyError(name) from None

    def __iter__(self) -> Iterator[str]:
        return (name.decode("latin-1") for name in self.wire)

    def __len__(self) -> int:
        return len(self.wire)

    def __repr__(self) -> str:
        """Name the headers. Their values may be secrets."""
        return f"<Headers: {', '.join(self) or 'none'}>"


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
    got = headers.wire.get(PROTOCOL_VERSION)
    if got is None or (got != version.encode() and got.strip(b" \t") != version.encode()):
        raise _mismatch("MCP-Protocol-Version", got, "the protocol version in params._meta")

    got = headers.wire.get(METHOD_HEADER)
    if got is None or (got != method.encode() and got.strip(b" \t") != method.encode()):
        raise _mismatch("Mcp-Method", got, "the method")

    if name is not None:
        got = headers.wire.get(NAME_HEADER)
        if got is None or not (_is_plainly(got, name) or decode_value(got) == name):
            raise _mismatch("Mcp-Name", got, f"params.{NAMED_PARAMS.get(method, 'name')}")


def check_name(headers: Headers, name: str, mirrored: str) -> None:
    """Check that the name header, if it was sent, equals the body's value.

    `mirrored` describes the value, for the message.

    Raises:
        HeaderMismatch: malformed or different.
    """
    got = headers.wire.get(NAME_HEADER)
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

        got = headers.wire.get(header)
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
