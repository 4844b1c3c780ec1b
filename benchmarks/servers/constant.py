"""The bare cost of HTTP: an ASGI application that sends constant bytes.

The application reads the body first. `/add`, `/list` and `/progress` answer with as many bytes, and in as many events,
as an MCP server. env: PORT, NTOOLS.
"""

import json
import os
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

import uvicorn

Message = MutableMapping[str, Any]

STEPS = 20


def _event(message: dict[str, Any]) -> bytes:
    return b"event: message\r\ndata: " + json.dumps(message, separators=(",", ":")).encode() + b"\r\n\r\n"


def _tool(number: int) -> dict[str, Any]:
    properties = {
        "a": {"type": "integer"},
        "b": {"type": "string", "default": "x"},
        "c": {"type": "boolean", "default": False},
    }
    return {
        "name": f"tool_{number}",
        "description": f"Filler tool number {number}.",
        "inputSchema": {"type": "object", "properties": properties, "required": ["a"], "additionalProperties": False},
        "outputSchema": {"type": "object", "properties": {"result": {"type": "string"}}, "required": ["result"]},
    }


def _result(value: dict[str, Any]) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": 1_000_000_000, "result": value}


def _text(value: str) -> dict[str, Any]:
    content = [{"type": "text", "text": value}]
    return _result({"resultType": "complete", "content": content, "structuredContent": {"result": value}})


def _progress(step: int) -> dict[str, Any]:
    params = {"progressToken": 100000, "progress": step, "total": STEPS}
    return {"jsonrpc": "2.0", "method": "notifications/progress", "params": params}


JSON = [(b"content-type", b"application/json")]
SSE = [(b"content-type", b"text/event-stream"), (b"cache-control", b"no-cache")]
BODIES = {
    "/add": json.dumps(_text("100007"), separators=(",", ":")).encode(),
    "/list": json.dumps(
        _result({"tools": [_tool(number) for number in range(int(os.environ.get("NTOOLS", "5")))]}),
        separators=(",", ":"),
    ).encode(),
}
EVENTS = [*(_event(_progress(step + 1)) for step in range(STEPS)), _event(_text("done"))]


async def app(
    scope: MutableMapping[str, Any],
    receive: Callable[[], Awaitable[Message]],
    send: Callable[[Message], Awaitable[None]],
) -> None:
    """Read the body without parsing it, and respond."""
    more = True
    while more:
        more = (await receive()).get("more_body", False)
    if scope["path"] == "/progress":
        await send({"type": "http.response.start", "status": 200, "headers": SSE})
        for event in EVENTS:
            await send({"type": "http.response.body", "body": event, "more_body": True})
        await send({"type": "http.response.body", "body": b""})
        return
    body = BODIES[scope["path"]]
    await send(
        {
            "type": "http.response.start",
            "status": 200,
            "headers": [*JSON, (b"content-length", b"%d" % len(body))],
        }
    )
    await send({"type": "http.response.body", "body": body})


if __name__ == "__main__":
    uvicorn.run(
        app,
        host="127.0.0.1",
        port=int(os.environ["PORT"]),
        loop="uvloop",
        http="httptools",
        lifespan="off",
        access_log=False,
        log_level="warning",
    )
