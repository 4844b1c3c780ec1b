"""The requests of the measurements, as bytes, and texts that a correct response contains.

A measurement must not ask the measured package for its constants, so the protocol's names stand here once more.
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
    """How a subject is spoken to."""

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
"""What is the same on all servers, and needs no `Ask`."""


class Expected(NamedTuple):
    """Bytes in the body of a correct response."""

    texts: tuple[bytes, ...]
    """Each of them at least once."""
    counted: bytes = b""
    times: int = 0
    """`counted` exactly this many times; 0: no matter."""

    def fits(self, body: bytes) -> bool:
        """Whether `body`, with any chunked framing already removed, is the right answer."""
        if b'"isError":true' in body or b'"isError": true' in body:
            return False
        for text in self.texts:
            if text not in body:
                return False
        return not self.times or body.count(self.counted) == self.times


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """What a kind of work is on a server that has a name of its own for it."""

    work: Work
    tool: str = ""
    arguments: str = "{}"
    """Of the tool, in JSON."""
    path: str = ""
    """Instead of a tool: what is got from here."""
    expected: Expected


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """Where the requests go: one endpoint, in one dialect."""

    port: int
    path: str
    dialect: Dialect
    headers: dict[str, str] = field(default_factory=dict)
    """Sent with each request besides those of the dialect."""
    asks: tuple[Ask, ...] = ()

    def ask(self, work: Work) -> Ask | None:
        """What `work` is here, unless it is the same everywhere."""
        return next((ask for ask in self.asks if ask.work is work), None)

    def get(self, path: str) -> bytes:
        """The whole HTTP request for what is at `path`."""
        lines = [f"GET {path} HTTP/1.1", f"Host: 127.0.0.1:{self.port}", "Accept: application/json"]
        return "\r\n".join(lines).encode() + b"\r\n\r\n"

    def post(self, message: dict[str, Any], headers: dict[str, str] | None = None) -> bytes:
        """The whole HTTP request for `message`, a JSON-RPC object."""
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
        """The request that ends a session."""
        lines = [f"DELETE {self.path} HTTP/1.1", f"Host: 127.0.0.1:{self.port}", "Content-Length: 0"]
        lines += [f"{name}: {value}" for name, value in {**self.headers, **session_headers(session)}.items()]
        return "\r\n".join(lines).encode() + b"\r\n\r\n"


def to_json(message: dict[str, Any]) -> bytes:
    """A JSON-RPC message as bytes."""
    return json.dumps(message, separators=(",", ":")).encode()


def session_headers(session: str) -> dict[str, str]:
    """What a handshake-era client sends after `initialize`; servers without sessions give an empty key."""
    return {"MCP-Protocol-Version": HANDSHAKE_VERSION, **({"Mcp-Session-Id": session} if session else {})}


def initialize() -> dict[str, Any]:
    """The first message of the handshake era."""
    params = {"protocolVersion": HANDSHAKE_VERSION, "capabilities": {}, "clientInfo": CLIENT}
    return {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params}


def initialized() -> dict[str, Any]:
    """The message that ends the handshake."""
    return {"jsonrpc": "2.0", "method": "notifications/initialized"}


class Requests:
    """An endless series of one kind of request on one connection; no two of a series have the same id.

    Ids and terms keep their number of digits, so a request is one formatting of a template whose Content-Length holds.
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
        """The next request, and what its answer must hold."""
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
    """An endless series of calls of "add" on one WebSocket, a text frame each; ids and terms as in `Requests`."""

    def __init__(self, dialect: Dialect) -> None:
        message = to_json(_message(Work.ADD, dialect))
        self._template, self._echoed, self._next = _template(frame(message)), dialect is Dialect.CONSTANT, 0

    def make(self) -> tuple[int, bytes, bytes]:
        """The next request: its id, its frame, and what its answer must hold."""
        number, self._next = self._next, self._next + 1
        identifier, term = _FIRST_ID + number, _FIRST_TERM + number % _TERMS
        return identifier, self._template % (identifier, term), b"%d" % (term if self._echoed else term + 7)


def frame(message: bytes) -> bytes:
    """A client's text frame (RFC 6455, section 5.2), under a mask of zeros: the server works as for any other."""
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
