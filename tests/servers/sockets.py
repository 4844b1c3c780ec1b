"""A WebSocket client on a bare socket: every byte of it is the test's, and so is the moment at which it leaves.

with Socket(port, "/mcp/ws") as ws:
    assert ws.status == 101
    ws.call("wait", {"tag": "a"})
    ws.leave(reset=True)
"""

import itertools
import json
import socket
import struct
from collections.abc import Mapping, Sequence
from typing import Any

from websockets.client import ClientProtocol
from websockets.frames import Frame, Opcode
from websockets.http11 import Response
from websockets.uri import parse_uri

from tests.servers.client import HANDSHAKE, META, STATELESS
from tests.support.waiting import WAIT_SECONDS

TEXT, BINARY, CLOSE = Opcode.TEXT, Opcode.BINARY, Opcode.CLOSE


class Socket:
    """A handshake, and the socket if it was accepted. It speaks the stateless era until `initialize`."""

    def __init__(
        self, port: int, path: str = "/mcp/ws", *, subprotocols: Sequence[str] = (), headers: Mapping[str, str] = {}
    ) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=WAIT_SECONDS)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        uri = parse_uri(f"ws://127.0.0.1:{port}{path}")
        self._protocol = ClientProtocol(uri, subprotocols=list(subprotocols) or None, max_size=None)  # type: ignore[arg-type]
        request = self._protocol.connect()
        request.headers.update(headers)
        self._protocol.send_request(request)
        self._coming: list[Any] = []
        self._ids = itertools.count(1)
        self.revision = STATELESS
        self._flush()
        response = self._event()
        assert isinstance(response, Response), response
        self.response = response

    @property
    def status(self) -> int:
        """101 for a socket."""
        return self.response.status_code

    def header(self, name: str) -> str | None:
        """A header of the answer."""
        return self.response.headers.get(name)

    def __enter__(self) -> "Socket":
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def _flush(self) -> None:
        for data in self._protocol.data_to_send():
            if data:
                self.socket.sendall(data)

    def _event(self) -> Any:
        """The next thing that comes in; None when the server has hung up."""
        while not self._coming:
            try:
                data = self.socket.recv(1 << 16)
            except ConnectionError:
                data = b""
            if data:
                self._protocol.receive_data(data)
            else:
                self._protocol.receive_eof()
            self._coming += self._protocol.events_received()
            try:
                self._flush()
            except OSError:
                pass  # it answers a close frame, and the server is gone
            if not data and not self._coming:
                return None
        return self._coming.pop(0)

    def text(self, text: str) -> None:
        """Send a frame."""
        self._protocol.send_text(text.encode())
        self._flush()

    def binary(self, data: bytes) -> None:
        """Send a frame that no message may be in."""
        self._protocol.send_binary(data)
        self._flush()

    def request(self, method: str, params: Mapping[str, Any] | None = None) -> int:
        """Begin a request; its id."""
        id, params = next(self._ids), dict(params or {})
        if self.revision == STATELESS:
            own = {META + "protocolVersion": STATELESS, META + "clientCapabilities": {}}
            params["_meta"] = {**own, **params.get("_meta", {})}
        self.text(json.dumps({"jsonrpc": "2.0", "id": id, "method": method, "params": params}))
        return id

    def call(self, tool: str, arguments: Mapping[str, Any] | None = None) -> int:
        """Begin a `tools/call`, which wants progress; its id."""
        meta = {"progressToken": "token"}
        return self.request("tools/call", {"name": tool, "arguments": dict(arguments or {}), "_meta": meta})

    def notify(self, method: str, **params: Any) -> None:
        self.text(json.dumps({"jsonrpc": "2.0", "method": method, "params": params}))

    def initialize(self) -> dict[str, Any]:
        """Open a session; the answer."""
        self.revision = HANDSHAKE
        who = {"name": "tests", "version": "1"}
        self.request("initialize", {"protocolVersion": HANDSHAKE, "capabilities": {}, "clientInfo": who})
        answer = self.message()
        self.notify("notifications/initialized")
        return answer

    def message(self) -> dict[str, Any]:
        """The next JSON-RPC message."""
        while True:
            frame = self._event()
            assert isinstance(frame, Frame), frame
            assert frame.opcode is not CLOSE, frame
            if frame.opcode is TEXT:
                message: dict[str, Any] = json.loads(frame.data)
                return message

    def value(self, tool: str, arguments: Mapping[str, Any] | None = None) -> Any:
        """Call a tool; return its value."""
        id = self.call(tool, arguments)
        answer = self.message()
        assert answer.get("id") == id, answer
        assert not answer["result"].get("isError"), answer
        return answer["result"]["structuredContent"]["result"]

    def closed(self) -> tuple[int, str] | None:
        """Wait for the end; code and reason of the server's close frame, None without one. Messages before are passed
        over.
        """
        while (frame := self._event()) is not None:
            if isinstance(frame, Frame) and frame.opcode is CLOSE:
                code: int = struct.unpack("!H", frame.data[:2])[0] if len(frame.data) >= 2 else 1005
                return code, bytes(frame.data[2:]).decode()
        return None

    def hung_up(self) -> bool:
        """Wait for the end of the connection itself."""
        while self._event() is not None:
            pass
        return True

    def leave(self, *, reset: bool = False, close: bool = False) -> None:
        """Leave: with FIN, with RST, or with a close frame before."""
        if close:
            self._protocol.send_close(1000)
            self._flush()
        elif reset:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.socket.close()
