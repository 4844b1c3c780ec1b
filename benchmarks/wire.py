"""Requests of the measurements as bytes, and the texts of correct responses.

A measurement must not import constants of the measured package, so the names of the protocol are repeated here.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, NamedTuple

STATELESS_VERSION = "2026-07-28"
HANDSHAKE_VERSION = "2025-11-25"
CLIENT = {"name": "benchmarks", "version": "1"}
STEPS = 20
"""Progress notifications of one `countdown` call."""

_FIRST_ID = 1_000_000_000
_FIRST_TERM = 100_000
_TERMS = 800_000
_ID = 1_777_777_777
_TERM = 177_777


class Dialect(Enum):
    """The protocol of the requests to a subject."""

    STATELESS = "modern"
    HANDSHAKE = "legacy"
    CONSTANT = "constant"


class Work(Enum):
    """The kind of work of a request."""

    ADD = "add"
    LIST = "list"
    PROGRESS = "progress"
    ROWS = "list of 100"
    ROW = "get"


EVERYWHERE = (Work.ADD, Work.LIST, Work.PROGRESS)
"""The kinds of work that are the same on all servers, and need no `Ask`."""


class Expected(NamedTuple):
    """Bytes in the body of a correct response."""

    texts: tuple[bytes, ...]
    """Texts that each occur at least once."""
    counted: bytes = b""
    times: int = 0
    """Number of occurrences of `counted`. 0 allows any number."""

    def fits(self, body: bytes) -> bool:
        """Return True if a body, without chunked framing, is the right answer."""
        if b'"isError":true' in body or b'"isError": true' in body:
            return False
        for text in self.texts:
            if text not in body:
                return False
        return not self.times or body.count(self.counted) == self.times


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """A request of a kind of work that differs between servers."""

    work: Work
    tool: str = ""
    arguments: str = "{}"
    """The arguments of the tool, in JSON."""
    path: str = ""
    """The path of a GET request, which is made instead of a call of a tool."""
    expected: Expected


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """The target of requests: an endpoint, in one dialect."""

    port: int
    path: str
    dialect: Dialect
    headers: dict[str, str] = field(default_factory=dict)
    """Headers that are sent with each request, in addition to those of the dialect."""
    asks: tuple[Ask, ...] = ()

    def ask(self, work: Work) -> Ask | None:
        """Return the request of a kind of work, or None if it is the same on all servers."""
        return next((ask for ask in self.asks if ask.work is work), None)

    def get(self, path: str) -> bytes:
        """Return the HTTP request that gets a path."""
        lines = [f"GET {path} HTTP/1.1", f"Host: 127.0.0.1:{self.port}", "Accept: application/json"]
        return "\r\n".join(lines).encode() + b"\r\n\r\n"

    def post(self, message: dict[str, Any], headers: dict[str, str] | None = None) -> bytes:
        """Return the HTTP request that posts a JSON-RPC message."""
        body = to_json(message)
        lines = [
            f"POST {self.path} HTTP/1.1",
            f"Host: 127.0.0.1:{self.port}",
            "Content-Type: application/json",
            "Accept: application/json, text/event-stream",
            f"Content-Length: {len(body)}",
            *(f"{name}: {value}" for name, value in {**self.headers, **(headers or {})}.items()),
        ]
        return "\r\n".join(lines).encode() + b"\r\n\r\n" + body

    def delete(self, session: str) -> bytes:
        """Return the HTTP request that ends a session."""
        lines = [f"DELETE {self.path} HTTP/1.1", f"Host: 127.0.0.1:{self.port}", "Content-Length: 0"]
        lines += [f"{name}: {value}" for name, value in {**self.headers, **session_headers(session)}.items()]
        return "\r\n".join(lines).encode() + b"\r\n\r\n"


def to_json(message: dict[str, Any]) -> bytes:
    """Encode a JSON-RPC message."""
    return json.dumps(message, separators=(",", ":")).encode()


def session_headers(session: str) -> dict[str, str]:
    """Return the headers of a handshake-era client after `initialize`.

    The session of a server without sessions is an empty string.
    """
    return {"MCP-Protocol-Version": HANDSHAKE_VERSION, **({"Mcp-Session-Id": session} if session else {})}


def initialize() -> dict[str, Any]:
    """Return the first message of the handshake era."""
    params = {"protocolVersion": HANDSHAKE_VERSION, "capabilities": {}, "clientInfo": CLIENT}
    return {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params}


def initialized() -> dict[str, Any]:
    """Return the message that ends the handshake."""
    return {"jsonrpc": "2.0", "method": "notifications/initialized"}


class Requests:
    """An endless series of requests of one kind on one connection.

    All requests have different ids. Ids and terms keep their number of digits, so that a request is made by formatting
    a template, whose Content-Length stays correct.
    """

    def __init__(self, target: Target, work: Work, *, session: str = "", tools: int = 5) -> None:
        self._work, self._tools, self._constant = work, tools, target.dialect is Dialect.CONSTANT
        self._ask, self._next = target.ask(work), 0
        if self._ask is not None and self._ask.path:
            self._template, self._numbers = target.get(self._ask.path), 0
            return
        message = _message(work, target.dialect, self._ask)
        headers = {"Mcp-Method": message["method"]}
        if target.dialect is Dialect.HANDSHAKE:
            headers = session_headers(session)
        else:
            headers["MCP-Protocol-Version"] = STATELESS_VERSION
            if "name" in message["params"]:
                headers["Mcp-Name"] = message["params"]["name"]
        self._template = _template(target.post(message, headers))
        self._numbers = 2 if work in (Work.ADD, Work.PROGRESS) else 1

    def make(self) -> tuple[bytes, Expected]:
        """Return the next request, and the expected content of its answer."""
        number, self._next = self._next, self._next + 1
        identifier, term = _FIRST_ID + number, _FIRST_TERM + number % _TERMS
        if not self._numbers:
            request = self._template
        elif self._numbers == 1:
            request = self._template % identifier
        else:
            request = self._template % (identifier, term)
        return request, self._expected(b"%d" % identifier, term)

    def _expected(self, identifier: bytes, term: int) -> Expected:
        if self._ask is not None:
            return self._ask.expected
        if self._work is Work.LIST:
            return Expected((b'"tools"',) if self._constant else (identifier,), b'"inputSchema"', self._tools)
        if self._work is Work.PROGRESS:
            texts = (b"done",) if self._constant else (identifier, b"%d" % term, b"done")
            return Expected(texts, b"notifications/progress", STEPS)
        return Expected((b'"result"',) if self._constant else (identifier, b"%d" % (term + 7)))


class Frames:
    """An endless series of calls of "add" on one WebSocket.

    Each call is a text frame, with ids and terms as in `Requests`.
    """

    def __init__(self, dialect: Dialect) -> None:
        message = to_json(_message(Work.ADD, dialect))
        self._template, self._echoed, self._next = _template(frame(message)), dialect is Dialect.CONSTANT, 0

    def make(self) -> tuple[int, bytes, bytes]:
        """Return the next request: its id, its frame, and the expected text of its answer."""
        number, self._next = self._next, self._next + 1
        identifier, term = _FIRST_ID + number, _FIRST_TERM + number % _TERMS
        return identifier, self._template % (identifier, term), b"%d" % (term if self._echoed else term + 7)


def frame(message: bytes) -> bytes:
    """Return a text frame of a client (RFC 6455, section 5.2).

    Its mask consists of zeros, with which the server works as with any other mask.
    """
    size = len(message)
    if size < 126:
        return bytes([0x81, 0x80 | size]) + bytes(4) + message
    return b"\x81\xfe" + size.to_bytes(2, "big") + bytes(4) + message


def _template(request: bytes) -> bytes:
    return request.replace(b"%", b"%%").replace(b"%d" % _ID, b"%d").replace(b"%d" % _TERM, b"%d")


def _message(work: Work, dialect: Dialect, ask: Ask | None = None) -> dict[str, Any]:
    if ask is not None:
        method, params = "tools/call", {"name": ask.tool, "arguments": json.loads(ask.arguments)}
    elif work is Work.LIST:
        method, params = "tools/list", dict[str, Any]()
    elif work is Work.PROGRESS:
        method, params = "tools/call", {"name": "countdown", "arguments": {"steps": STEPS}}
        params["_meta"] = {"progressToken": _TERM}
    else:
        method, params = "tools/call", {"name": "add", "arguments": {"a": _TERM, "b": 7}}
    if dialect is not Dialect.HANDSHAKE:
        params.setdefault("_meta", {}).update(_stateless_meta())
    return {"jsonrpc": "2.0", "id": _ID, "method": method, "params": params}


def _stateless_meta() -> dict[str, Any]:
    return {
        "io.modelcontextprotocol/protocolVersion": STATELESS_VERSION,
        "io.modelcontextprotocol/clientInfo": CLIENT,
        "io.modelcontextprotocol/clientCapabilities": {},
    }
