"""A web API: `python -m tests.composed.api PORT [UPSTREAM]`.

It answers as in the document, with the key of the request. Below /mcp it forwards to UPSTREAM, an MCP server, and
records the credentials of the requests, which GET /seen returns.
"""

import json
import sys
from collections.abc import AsyncIterator
from typing import Any

import httpx
import uvicorn

OURS = {"connection", "content-length", "host", "transfer-encoding"}
SEEN: list[list[str]] = []
"""Credential and body of each message that was passed on."""


class Api:
    """An ASGI application."""

    def __init__(self, upstream: str) -> None:
        self._upstream = upstream
        self._client = httpx.AsyncClient(timeout=None)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            return
        headers = {name.decode().lower(): value.decode() for name, value in scope["headers"]}
        if scope["path"] == "/mcp":
            await self._pass_on(scope["method"], headers, await _body(receive), send)
            return
        key = headers.get("x-figma-token", "")
        if scope["path"] == "/v1/me":
            await _answer(send, {"id": "1", "handle": key, "img_url": "", "email": f"{key}@example.com"})
        elif scope["path"].endswith("/comments"):
            await _answer(send, {"comments": [], "key": key})
        elif scope["path"] == "/seen":
            await _answer(send, SEEN)
        else:
            await _answer(send, {"status": 404, "err": "Not found"}, status=404)

    async def _pass_on(self, method: str, headers: dict[str, str], body: bytes, send: Any) -> None:
        SEEN.append([headers.get("authorization", ""), body.decode()])
        sent = {name: value for name, value in headers.items() if name not in OURS}
        try:
            async with self._client.stream(method, self._upstream, headers=sent, content=body) as answer:
                await _relay(send, answer)
        except httpx.HTTPError:
            await _answer(send, {"error": "the upstream is gone"}, status=502)


async def _relay(send: Any, answer: httpx.Response) -> None:
    kept = [(name.encode(), value.encode()) for name, value in answer.headers.items() if name.lower() not in OURS]
    await send({"type": "http.response.start", "status": answer.status_code, "headers": kept})
    pieces: AsyncIterator[bytes] = answer.aiter_raw()
    try:
        async for piece in pieces:
            await send({"type": "http.response.body", "body": piece, "more_body": True})
    except httpx.HTTPError:
        pass  # the upstream has cut the connection, so this response is cut as well
    await send({"type": "http.response.body", "body": b""})


async def _body(receive: Any) -> bytes:
    body = b""
    while True:
        message = await receive()
        body += message.get("body", b"")
        if not message.get("more_body"):
            return body


async def _answer(send: Any, value: Any, *, status: int = 200) -> None:
    headers = [(b"content-type", b"application/json")]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": json.dumps(value).encode()})


if __name__ == "__main__":
    upstream = sys.argv[2] if len(sys.argv) > 2 else ""
    uvicorn.run(Api(upstream), host="127.0.0.1", port=int(sys.argv[1]), log_level="warning")
