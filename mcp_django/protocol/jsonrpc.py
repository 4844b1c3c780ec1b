"""JSON-RPC 2.0: messages from bytes, and results, errors and requests to bytes.

JSON is decoded once and encoded once, here. This module checks the shape of one message. The rules of revisions and
eras (arrays, responses, a required ``_meta``) are checked elsewhere.
"""

from __future__ import annotations

import gc
import json
import re
from collections.abc import Mapping
from typing import Any, NamedTuple

import orjson

from mcp_django.protocol.client_habits import remove_null_members
from mcp_django.protocol.errors import InvalidRequest, MCPError, ParseError

JSONObject = dict[str, Any]
"""JSON object that this package builds or may change."""
JSONMapping = Mapping[str, Any]
"""JSON object that is only read."""

Id = int | str
"""A request id.

``1`` and ``"1"`` are two ids; booleans, floats and null are invalid.
"""

loads = orjson.loads
Fragment = orjson.Fragment
"""Part of a value that is encoded already."""


def loads_exactly(text: str | bytes) -> Any:
    """Decode JSON whose integers may have any size.

    Raises ValueError, also for nesting that is too deep for the parser of Python. That parser raises RecursionError,
    which callers do not expect of a text.
    """
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("The JSON is nested too deeply") from None


def dumps(value: Any) -> bytes:
    """Encode a value.

    Text that is no Unicode, such as a file name in another encoding, has the replacement character in place of each
    lone surrogate. Integers of any size are numbers. Raises TypeError for other values that have no form in JSON.
    """
    try:
        return orjson.dumps(value)
    except TypeError:
        return orjson.dumps(_replace_unsupported(value))


def dumps_sorted(value: Any) -> bytes:
    """Encode a value for digests, with the keys of every object sorted."""
    try:
        return orjson.dumps(value, option=orjson.OPT_SORT_KEYS)
    except TypeError:
        return orjson.dumps(_replace_unsupported(value), option=orjson.OPT_SORT_KEYS)


def is_unicode(text: str) -> bool:
    """Return True for a text without lone surrogates, which UTF-8 cannot encode."""
    return _SURROGATES.search(text) is None


def _replace_unsupported(value: Any, depth: int = 0) -> Any:
    """Return a copy of a value without lone surrogates, and with large integers in their decimal form."""
    if depth > MAX_ENCODED_DEPTH:
        return value
    if isinstance(value, str):
        return _SURROGATES.sub("\ufffd", value)
    if isinstance(value, int) and not -(2**63) <= value < 2**64:
        return Fragment(_format_integer(value))
    if isinstance(value, dict):
        return {_replace_unsupported(key): _replace_unsupported(item, depth + 1) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_replace_unsupported(item, depth + 1) for item in value]
    return value


def _format_integer(value: int) -> str:
    try:
        return str(value)
    except ValueError:
        raise TypeError(f"an integer of {value.bit_length()} bits is too large for JSON") from None


class Request(NamedTuple):
    """A call that expects a response with ``id``.

    ``params`` is None when the member was absent.
    """

    id: Id
    method: str
    params: dict[str, Any] | None


class Notification(NamedTuple):
    """A call without a response."""

    method: str
    params: dict[str, Any] | None


class Response(NamedTuple):
    """The peer's response to a request.

    ``error`` is None, or an object with ``code`` and ``message``.
    """

    id: Id
    result: Any
    error: dict[str, Any] | None


Message = Request | Notification | Response

# Same as Request(...), but without its Python function: half the cost on the hottest path.
_new = tuple.__new__

LARGE_BODY_BYTES = 64 * 1024
"""Size in bytes from which a document is decoded without garbage collection."""

MAX_NESTING = 64
"""Maximum nesting of arrays and objects in a message."""
MAX_ENCODED_DEPTH = 254
"""Maximum nesting that orjson encodes."""

_SURROGATES = re.compile("[\ud800-\udfff]")
_OPEN_ARRAY = ord("[")
_OPENING_ONLY = bytes.maketrans(b"{}", b"[]")
_NOT_BRACKETS = bytes(byte for byte in range(256) if byte not in b"[]{}")
_RUNS = re.compile(rb"\[+|\]+")


def decode(body: bytes | str, *, max_nesting: int = MAX_NESTING) -> Any:
    """Decode one JSON document, from bytes in UTF-8 or from text.

    Raises:
        ParseError: not JSON, or not UTF-8.
        InvalidRequest: objects and arrays are nested deeper than `max_nesting`.
    """
    if isinstance(body, str):
        body = _encode(body)
    # A quick check for ordinary requests. An object takes five bytes a level, `{"":` and `}`. With at most
    # `max_nesting` opening brackets, inside strings or not, deeper nesting is impossible. Searching a byte is cheaper
    # than counting.
    if (
        (_OPEN_ARRAY in body or len(body) > 5 * max_nesting)
        and body.count(b"{") + body.count(b"[") > max_nesting
        and _exceeds_nesting(body, max_nesting)
    ):
        raise InvalidRequest(f"Invalid request: nested deeper than {max_nesting} levels")

    try:
        return loads(body) if len(body) < LARGE_BODY_BYTES else _load_large(body)
    except ValueError:
        raise ParseError from None


def _encode(text: str) -> bytes:
    """Encode a text. Raises ParseError for a lone surrogate."""
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise ParseError from None


def _load_large(body: bytes) -> Any:
    """Decode a large document without garbage collection.

    A document that is being decoded has no garbage, but the collector would traverse it repeatedly. That takes most of
    the time for a body of a million empty arrays.
    """
    if not gc.isenabled():
        return loads(body)
    gc.disable()
    try:
        return loads(body)
    finally:
        gc.enable()


def _exceeds_nesting(body: bytes, limit: int) -> bool:
    """Return True if `body` is nested deeper than `limit`.

    Runs in linear time and without recursion. Exact for valid JSON.
    """
    # A backslash occurs only inside strings. Without escaped quotes, every second piece between quotes is a string.
    if b"\\" in body:
        body = body.replace(b"\\\\", b"").replace(b'\\"', b"")
    brackets = b"".join(body.split(b'"')[::2]).translate(_OPENING_ONLY, _NOT_BRACKETS)
    # Removing the innermost pairs lowers every peak by one. A few rounds leave few runs to count.
    depth = min(4, limit)
    for _ in range(depth):
        brackets = brackets.replace(b"[]", b"")

    for run in _RUNS.findall(brackets):
        if run[0] == _OPEN_ARRAY:
            depth += len(run)
            if depth > limit:
                return True
        else:
            depth -= len(run)
    return False


def read(raw: Any) -> Message:
    """Convert a JSON value to a message.

    Raises:
        InvalidRequest: an invalid message; ``request_id`` is set when the id was readable.
    """
    if type(raw) is not dict:
        raise InvalidRequest("Invalid request: a message is a JSON object")

    method = raw.get("method")
    if type(method) is str and raw.get("jsonrpc") == "2.0":
        params = raw.get("params")
        # Some libraries encode absent params as null.
        if type(params) is dict or params is None:
            params = params and remove_null_members(method, params)
            id = raw.get("id")
            if type(id) is int or type(id) is str:
                return _new(Request, (id, method, params))
            if id is None and "id" not in raw:
                return Notification(method, params)
    elif method is None and raw.get("jsonrpc") == "2.0" and "method" not in raw:
        id = raw.get("id")
        if type(id) is int or type(id) is str:
            error = raw.get("error")
            if error is None and "error" not in raw and "result" in raw:
                return Response(id, raw["result"], None)
            if "result" not in raw and _is_error(error):
                return Response(id, None, error)

    raise _build_refusal(raw)


def _is_error(error: Any) -> bool:
    return type(error) is dict and type(error.get("code")) is int and type(error.get("message")) is str


def _build_refusal(raw: dict[str, Any]) -> InvalidRequest:
    """Build the error for an invalid message. Only the slow path calls this."""
    id = raw.get("id")
    readable = id if type(id) is int or type(id) is str else None

    if raw.get("jsonrpc") != "2.0":
        problem = 'jsonrpc must be "2.0"'
    elif "id" in raw and readable is None:
        problem = "id must be a string or an integer"
    elif "method" not in raw:
        problem = "a message has a method, or an id with either a result or an error object"
    elif type(raw["method"]) is not str:
        problem = "method must be a string"
    else:
        problem = "params must be an object"
    return InvalidRequest(f"Invalid request: {problem}", request_id=readable)


def result(id: Id, value: Any) -> bytes:
    """Encode a response with a result."""
    return dumps({"jsonrpc": "2.0", "id": id, "result": value})


def splice(id: Id, encoded_result: bytes) -> bytes:
    """Encode a response around an encoded result."""
    return b'{"jsonrpc":"2.0","id":%b,"result":%b}' % (dumps(id), encoded_result)


def error(id: Id | None, problem: MCPError, *, code: int | None = None) -> bytes:
    """Encode an error response, without an unreadable id.

    `code` overrides the error's own.
    """
    body: dict[str, Any] = {"code": problem.code if code is None else code, "message": problem.message}
    if problem.data is not None:
        body["data"] = problem.data
    if id is None:
        return dumps({"jsonrpc": "2.0", "error": body})
    return dumps({"jsonrpc": "2.0", "id": id, "error": body})


def request(id: Id, method: str, params: dict[str, Any] | None = None) -> bytes:
    """Encode a request."""
    if params is None:
        return dumps({"jsonrpc": "2.0", "id": id, "method": method})
    return dumps({"jsonrpc": "2.0", "id": id, "method": method, "params": params})


def notification(method: str, params: dict[str, Any] | None = None) -> bytes:
    """Encode a notification."""
    if params is None:
        return dumps({"jsonrpc": "2.0", "method": method})
    return dumps({"jsonrpc": "2.0", "method": method, "params": params})


def compact(encoded: bytes) -> bytes:
    """Return a copy of the bytes in minimal memory, for storage.

    orjson reserves 4 KB more than it needs.
    """
    return memoryview(encoded).tobytes()


def batch(messages: list[bytes]) -> bytes:
    """Join encoded messages into one array."""
    return b"[%b]" % b",".join(messages)
