"""One HTTP request against an ASGI application, driven by hand.

An `Exchange` runs the application in a task and takes the part of the server: it passes the body, and receives the
events of the response. A test can read these one by one or slowly, and can disconnect before the end. It waits for
events, and never for a time.
"""

import asyncio
import json
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

App = Callable[[dict[str, Any], Callable[..., Any], Callable[..., Any]], Any]
Check = Callable[[dict[str, Any]], None]
"""Checks a message that the server emitted, and raises when it is none its revision defines."""


class Reply(NamedTuple):
    """A whole answer.

    Status and headers are HTTP's. Checks that apply to channels too are `served`, `accepted`, `refused` and `busy`,
    which compare the status where there is one.
    """

    status: int | None
    """None on a channel, where nothing but messages answers."""
    headers: dict[str, str]
    body: bytes
    messages: list[Any]
    """Every JSON-RPC message of the body, in order; a batch counts as one."""

    @property
    def message(self) -> Any:
        """The last message: the response."""
        return self.messages[-1]

    @property
    def answers(self) -> list[dict[str, Any]]:
        """The last message, or those of the last batch."""
        return self.message if isinstance(self.message, list) else [self.message]

    @property
    def is_stream(self) -> bool:
        return self.headers.get("content-type", "").startswith("text/event-stream")

    @property
    def result(self) -> dict[str, Any]:
        assert "result" in self.message, self.message
        result: dict[str, Any] = self.message["result"]
        return result

    @property
    def error(self) -> dict[str, Any]:
        assert "error" in self.message, self.message
        error: dict[str, Any] = self.message["error"]
        return error

    @property
    def verdict(self) -> tuple[int | None, int]:
        """HTTP status and error code."""
        return self.status, self.error["code"]

    @property
    def served(self) -> bool:
        """Return True if the answer is a result; over HTTP with status 200."""
        return self._has(200) and all("result" in answer for answer in self.answers)

    @property
    def accepted(self) -> bool:
        """Return True if it was accepted without content; over HTTP with status 202."""
        return self._has(202) and self.body == b""

    def refused(self, status: int, code: int) -> bool:
        """Return True if the answer is this error; over HTTP also with this status."""
        return self._has(status) and all(answer.get("error", {}).get("code") == code for answer in self.answers)

    def busy(self, status: int) -> bool:
        """Return True if the request was refused for the moment.

        Over HTTP the answer also has this status, and a Retry-After header.
        """
        later = self.status is None or float(self.headers.get("retry-after", 0)) > 0
        return later and self.refused(status, -32603)

    @property
    def may_stream(self) -> bool:
        """Return True if notifications could be sent; over HTTP this needs a stream."""
        return self.status is None or self.is_stream

    def _has(self, status: int) -> bool:
        return self.status is None or self.status == status

    def notifications(self, method: str) -> list[dict[str, Any]]:
        """Return the parameters of all notifications of one kind."""
        return [message["params"] for message in self.messages if message.get("method") == method]


class Frame(NamedTuple):
    """One event of a stream, or a comment."""

    data: bytes | None
    comment: bytes | None
    id: str | None = None
    retry: int | None = None
    """Milliseconds."""
    event: str | None = None
    """The type of the event. None means "message"."""


class Exchange:
    """A request in the air."""

    def __init__(self, app: App, scope: dict[str, Any], body: Iterable[bytes], check: Check) -> None:
        self._app, self._scope, self._check = app, scope, check
        self._body = deque(body) or deque([b""])
        self._gone, self._reading = asyncio.Event(), asyncio.Event()
        self._reading.set()
        self._sent: asyncio.Queue[dict[str, Any] | None] = asyncio.Queue()
        self._start: dict[str, Any] | None = None
        self._text, self._block, self._frames = b"", list[bytes](), deque[Frame]()
        self.last_id: str | None = None
        """The id of the last event that was taken."""
        self._raw: list[bytes] = []
        self._messages: list[Any] = []
        self._over = False
        self.task = asyncio.ensure_future(self._run())

    async def _run(self) -> None:
        try:
            await self._app(self._scope, self._receive, self._send)
        finally:
            self._sent.put_nowait(None)

    async def _receive(self) -> dict[str, Any]:
        if self._body:
            chunk = self._body.popleft()
            return {"type": "http.request", "body": chunk, "more_body": bool(self._body)}
        await self._gone.wait()
        return {"type": "http.disconnect"}

    async def _send(self, event: dict[str, Any]) -> None:
        await self._reading.wait()
        if not self._gone.is_set():
            self._sent.put_nowait(event)

    def leave(self) -> None:
        """Close the connection of the client."""
        self._gone.set()
        self._reading.set()

    def stop_reading(self) -> None:
        """Let the `send` of the server wait from now on, as with a full socket."""
        self._reading.clear()

    def read_on(self) -> None:
        self._reading.set()

    async def started(self) -> tuple[int, dict[str, str]]:
        """Status and headers, once they are there."""
        if self._start is None:
            self._start = await self._next()
            assert self._start is not None, "the application sent nothing"
            assert self._start["type"] == "http.response.start"
        headers = {name.decode().lower(): value.decode("latin-1") for name, value in self._start["headers"]}
        return self._start["status"], headers

    async def speaks(self) -> bool:
        """Return True if the response is a stream, which may have more than the answer."""
        _, headers = await self.started()
        return headers.get("content-type", "").startswith("text/event-stream")

    async def _next(self) -> dict[str, Any] | None:
        event = await self._sent.get()
        if event is None:
            await self.task
        return event

    async def _chunk(self) -> bytes | None:
        """The next piece of the body; None at its end."""
        await self.started()
        if self._over:
            return None
        event = await self._next()
        if event is None:
            self._over = True
            return None
        assert event["type"] == "http.response.body"
        self._over = not event.get("more_body", False)
        self._raw.append(event.get("body", b""))
        return self._raw[-1]

    async def frame(self) -> Frame | None:
        """The next event or comment of a stream; None at its end."""
        while not self._frames:
            chunk = await self._chunk()
            if chunk is None:
                assert not self._text + b"".join(self._block), f"the stream ends within an event: {self._text!r}"
                return None
            *lines, self._text = (self._text + chunk).split(b"\n")
            for line in lines:
                self._line(line)
        frame = self._frames.popleft()
        self.last_id = frame.id or self.last_id
        return frame

    def _line(self, line: bytes) -> None:
        if line.startswith(b":"):
            self._frames.append(Frame(None, line[1:]))
        elif line:
            self._block.append(line)
        elif self._block:
            self._frames.append(_frame(self._block))
            self._block = []

    async def message(self) -> dict[str, Any]:
        """The next JSON-RPC message of a stream. Comments and events without data are passed over."""
        while True:
            frame = await self.frame()
            assert frame is not None, "the stream ended"
            if frame.data:
                message: dict[str, Any] = self._take(frame.data)
                return message

    async def silence(self) -> Frame:
        """The next frame but events without data, which must be a comment."""
        frame = await self.frame()
        while frame is not None and frame.data == b"":
            frame = await self.frame()
        assert frame is not None, "the stream ended"
        assert frame.comment is not None, frame
        return frame

    async def reply(self) -> Reply:
        """Everything, to the end."""
        status, headers = await self.started()
        if headers.get("content-type", "").startswith("text/event-stream"):
            while (frame := await self.frame()) is not None:
                if frame.data:
                    self._take(frame.data)
        else:
            while await self._chunk() is not None:
                pass
            body = b"".join(self._raw)
            if headers.get("content-type", "").startswith("application/json"):
                self._take(body)
        await self.end()
        return Reply(status, headers, b"".join(self._raw), self._messages)

    async def end(self) -> None:
        """Wait until the application has returned; an exception of its own fails the test."""
        await self.task

    def _take(self, data: bytes) -> Any:
        message = json.loads(data)
        for one in message if isinstance(message, list) else [message]:
            self._check(one)
        self._messages.append(message)
        return message


def _frame(block: list[bytes]) -> Frame:
    fields: dict[bytes, list[bytes]] = {}
    for line in block:
        name, _, value = line.partition(b":")
        fields.setdefault(name, []).append(value.removeprefix(b" "))
    data, id, retry, event = (fields.get(name) for name in (b"data", b"id", b"retry", b"event"))
    return Frame(
        None if data is None else b"\n".join(data),
        None,
        None if id is None else id[-1].decode(),
        None if retry is None else int(retry[-1]),
        None if event is None else event[-1].decode(),
    )


def http_scope(method: str, path: str, headers: Mapping[str, str] | Iterable[tuple[str, str]], **more: Any) -> dict:
    """The ASGI scope of a request from loopback. Header names come lower-case, as servers give them."""
    pairs = headers.items() if isinstance(headers, Mapping) else headers
    return {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.4"},
        "http_version": "1.1",
        "method": method,
        "scheme": "http",
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "root_path": "",
        "headers": [(name.lower().encode(), value.encode("latin-1")) for name, value in pairs],
        "client": ("127.0.0.1", 50000),
        "server": ("127.0.0.1", 8000),
        **more,
    }
