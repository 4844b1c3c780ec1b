"""The headers of the stateless era that mirror the body: routing headers and ``Mcp-Param-*``.

Names are lower-case bytes and values are bytes, as ASGI gives them. The version and method headers are never encoded;
a name or parameter may come as ``=?base64?…?=`` (transports/streamable-http, standard headers and x-mcp-header).
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
METHOD = b"mcp-method"
NAME = b"mcp-name"
SESSION_ID = b"mcp-session-id"
LAST_EVENT_ID = b"last-event-id"
PARAM_PREFIX = b"mcp-param-"

ROUTING = frozenset({PROTOCOL_VERSION, METHOD, NAME})

NAMED = {"tools/call": "name", "prompts/get": "name", "resources/read": "uri"}
"""Methods whose ``Mcp-Name`` mirrors a parameter, and the parameter."""

TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
"""What a header's name may be made of (RFC 9110, section 5.6.2)."""

_PREFIX, _SUFFIX = b"=?base64?", b"?="
_LEGAL = re.compile(rb"[\t\x20-\x7e]*")
_PLAIN = re.compile(r"(?:[\x21-\x7e](?:[\x20-\x7e]*[\x21-\x7e])?)?")
_NUMBER = re.compile(r"-?[0-9]{1,40}(?:\.[0-9]{1,40})?(?:[eE][+-]?[0-9]{1,2})?")


_NONE: frozenset[bytes] = frozenset()
_LISTS = {b"baggage": b",", b"tracestate": b",", b"x-forwarded-for": b",", b"cookie": b"; "}


class Headers(dict[bytes, bytes]):
    """The last value of each header by lower-case name; `repeated` holds the names that came more than once.

    Those that are lists, and that somebody reads as such, are joined (RFC 9110, section 5.3).
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
    """The whole header name in lower case, ``mcp-param-`` included."""


def encode_value(text: str) -> bytes:
    """Write `text` as a header value, in the base64 form where plain text would not survive.

    Raises:
        ValueError: `text` holds lone surrogates.
    """
    if _PLAIN.fullmatch(text) and not (text.startswith("=?base64?") and text.endswith("?=")):
        return text.encode("ascii")
    return _PREFIX + base64.b64encode(text.encode()) + _SUFFIX


def decode_value(value: bytes) -> str:
    """Read a header value: strip blanks at both ends, undo the base64 form.

    Raises:
        HeaderMismatch: an illegal byte, or a malformed base64 form.
    """
    text = value.strip(b" \t")
    if not _LEGAL.fullmatch(text):
        raise HeaderMismatch("Header mismatch: a value holds bytes that no header may")
    if not (text.startswith(_PREFIX) and text.endswith(_SUFFIX) and len(text) >= len(_PREFIX) + len(_SUFFIX)):
        return text.decode("ascii")
    payload = text[len(_PREFIX) : -len(_SUFFIX)]
    try:
        raw = base64.b64decode(payload, validate=True)
        # b64decode tolerates surplus padding; the canonical spelling is the only one accepted.
        if base64.b64encode(raw) == payload:
            return raw.decode()
    except (binascii.Error, UnicodeDecodeError):
        pass
    raise HeaderMismatch("Header mismatch: a value is not base64 of UTF-8 text, padded and in the standard alphabet")


def check_routing(headers: Headers, version: str, method: str, name: str | None) -> None:
    """Check that the routing headers repeat what the body says; `name` is None for methods without one.

    Raises:
        HeaderMismatch: missing, repeated, malformed or different; the message names the header.
    """
    if headers.repeated and not headers.repeated.isdisjoint(ROUTING):
        raise HeaderMismatch("Header mismatch: a routing header came more than once")
    # Equal bytes are the ordinary case; only the rest is taken apart.
    got = headers.get(PROTOCOL_VERSION)
    if got is None or (got != version.encode() and got.strip(b" \t") != version.encode()):
        raise _mismatch("MCP-Protocol-Version", got, "the protocol version in params._meta")
    got = headers.get(METHOD)
    if got is None or (got != method.encode() and got.strip(b" \t") != method.encode()):
        raise _mismatch("Mcp-Method", got, "the method")
    if name is not None:
        got = headers.get(NAME)
        if got is None or not (_is_plainly(got, name) or decode_value(got) == name):
            raise _mismatch("Mcp-Name", got, f"params.{NAMED.get(method, 'name')}")


def _is_plainly(got: bytes, name: str) -> bool:
    # Equal bytes are not enough: they may be illegal in a header, or the encoded spelling of another name.
    return got == name.encode() and name.isascii() and name.isprintable() and not got.startswith(_PREFIX)


def _mismatch(header: str, got: bytes | None, mirrored: str) -> HeaderMismatch:
    if got is None:
        return HeaderMismatch(f"Header mismatch: {header} is missing; it repeats {mirrored}")
    return HeaderMismatch(f"Header mismatch: {header} differs from {mirrored}")


def check_params(headers: Headers, params: tuple[HeaderParam, ...], arguments: dict[str, Any]) -> None:
    """Check that each mirrored argument of a tool came in its header as well, and no header without its argument.

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
            raise HeaderMismatch(f"Header mismatch: {name} came more than once")
        if got is None or not _mirrors(decode_value(got), value):
            raise _mismatch(name, got, mirrored)


def _mirrors(text: str, value: Any) -> bool:
    if type(value) is str:
        return text == value
    if type(value) is bool:
        return text == ("true" if value else "false")
    if type(value) is int or type(value) is float:
        # Integers are compared as numbers: 42 is 42.0.
        return _NUMBER.fullmatch(text) is not None and Decimal(text) == value
    return False
