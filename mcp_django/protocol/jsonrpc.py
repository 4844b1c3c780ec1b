"""JSON-RPC 2.0: bytes to messages, and results, errors and requests to bytes.

JSON is decoded once and encoded once, here. What a revision or an era forbids (arrays, responses, a missing ``_meta``)
is not decided here; this module knows the shape of one message.
"""

from __future__ import annotations

import gc
import re
from typing import Any, NamedTuple

import orjson

from mcp_django.protocol.errors import InvalidRequest, MCPError, ParseError

Id = int | str
"""A request id. ``1`` and ``"1"`` are two ids; booleans, floats and null are none."""

dumps = orjson.dumps
loads = orjson.loads


def dumps_sorted(value: Any) -> bytes:
    """Encode with the keys of every object in order, for digests."""
    return orjson.dumps(value, option=orjson.OPT_SORT_KEYS)


class Request(NamedTuple):
    """A call that expects an answer under ``id``; ``params`` is None when the member was absent."""

    id: Id
    method: str
    params: dict[str, Any] | None


class Notification(NamedTuple):
    """A call that is never answered."""

    method: str
    params: dict[str, Any] | None


class Response(NamedTuple):
    """The peer's answer to a request of ours: ``error`` is None, or an object with ``code`` and ``message``."""

    id: Id
    result: Any
    error: dict[str, Any] | None


Message = Request | Notification | Response

# What Request(...) does, without the Python function in between: half the cost on the hottest path.
_new = tuple.__new__

LARGE = 64 * 1024
"""Bytes of a document that is read without the garbage collector."""

_OPEN_ARRAY = ord("[")
_OPENING_ONLY = bytes.maketrans(b"{}", b"[]")
_NOT_BRACKETS = bytes(byte for byte in range(256) if byte not in b"[]{}")
_RUNS = re.compile(rb"\[+|\]+")


def decode(body: bytes, *, max_nesting: int = 64) -> Any:
    """Read one JSON document.

    Raises:
        ParseError: not JSON, or not UTF-8.
        InvalidRequest: objects and arrays are nested deeper than `max_nesting`.
    """
    # Ordinary requests are cleared here: an object takes five bytes a level, `{"":` and `}`, and no more opening
    # brackets than the limit, in strings or out of them, means no deeper nesting. Looking is cheaper than counting.
    if (
        (_OPEN_ARRAY in body or len(body) > 5 * max_nesting)
        and body.count(b"{") + body.count(b"[") > max_nesting
        and _nested_deeper(body, max_nesting)
    ):
        raise InvalidRequest(f"Invalid request: nested deeper than {max_nesting} levels")
    try:
        return loads(body) if len(body) < LARGE else _load_large(body)
    except ValueError:
        raise ParseError from None


def _load_large(body: bytes) -> Any:
    """Nothing that is being read can be garbage yet, but the collector would walk over all of it again and again: most
    of the time that a body of a million empty arrays takes.
    """
    if not gc.isenabled():
        return loads(body)
    gc.disable()
    try:
        return loads(body)
    finally:
        gc.enable()


def _nested_deeper(body: bytes, limit: int) -> bool:
    """Measure the nesting of `body` in linear time and without recursion. Exact for valid JSON."""
    # A backslash occurs only inside strings; without escaped quotes every second piece between quotes is a string.
    if b"\\" in body:
        body = body.replace(b"\\\\", b"").replace(b'\\"', b"")
    brackets = b"".join(body.split(b'"')[::2]).translate(_OPENING_ONLY, _NOT_BRACKETS)
    # Taking out the innermost pairs lowers every peak by one, and a few times over leaves few runs to walk over.
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
    """Tell what message a JSON value is.

    Raises:
        InvalidRequest: it is none; ``request_id`` is set when the value had a readable id.
    """
    if type(raw) is not dict:
        raise InvalidRequest("Invalid request: a message is a JSON object")
    method = raw.get("method")
    if type(method) is str and raw.get("jsonrpc") == "2.0":
        params = raw.get("params")
        if type(params) is dict or (params is None and "params" not in raw):
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
    raise _refusal(raw)


def _is_error(error: Any) -> bool:
    return type(error) is dict and type(error.get("code")) is int and type(error.get("message")) is str


def _refusal(raw: dict[str, Any]) -> InvalidRequest:
    """Say which rule the object breaks; the road here is the slow one."""
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
    """Encode a response around a result that is JSON already."""
    return b'{"jsonrpc":"2.0","id":%b,"result":%b}' % (dumps(id), encoded_result)


def error(id: Id | None, problem: MCPError, *, code: int | None = None) -> bytes:
    """Encode an error response; an unreadable id is left out. `code` overrides the error's own."""
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
    """The same bytes in as little memory as they need, for those that are kept: orjson leaves 4 KB behind each."""
    return memoryview(encoded).tobytes()


def batch(messages: list[bytes]) -> bytes:
    """Join encoded messages into one array."""
    return b"[%b]" % b",".join(messages)
