"""The functions that a plain call of a tool passes, as docs/design/request.md lists them."""

import asyncio
import gc
import json
import re
import sys
from collections.abc import Iterator, MutableMapping
from pathlib import Path
from types import CoroutineType, FrameType
from typing import Any

import pytest

import mcp_django
from mcp_django import Server
from mcp_django.transports.http.asgi import StreamableHTTPApp
from mcp_django.transports.http.handler import StreamableHTTPEndpoint
from mcp_django.transports.services import build_services
from mcp_django.wiring import get_ports
from tests.interaction.clients import META, STATELESS

ENVELOPE = {f"{META}protocolVersion": STATELESS, f"{META}clientCapabilities": {}}

PACKAGE = Path(mcp_django.__file__).parent
PAGE = PACKAGE.parent / "docs" / "design" / "request.md"
ROW = re.compile(r"^\| \d+ \| `([\w/.]+)` \| `(?:\w+\.)?(\w+)` \|", re.MULTILINE)
MAX_FUNCTIONS, MAX_FILES = 10, 8
Function = tuple[str, str]
"""Path inside the package, and name."""


def name_function(filename: str, name: str) -> Function | None:
    """Name a function of the package; None for one of the standard library or of a test."""
    path = Path(filename)
    return (path.relative_to(PACKAGE).as_posix(), name) if path.is_relative_to(PACKAGE) else None


def iter_callers(frame: FrameType | None) -> Iterator[Function | None]:
    """Yield the functions on the stack, and those on the stack at the creation of each coroutine on it."""
    coroutines = {id(each.cr_frame): each for each in gc.get_objects() if type(each) is CoroutineType and each.cr_frame}
    while frame is not None:
        yield name_function(frame.f_code.co_filename, frame.f_code.co_name)
        coroutine = coroutines.get(id(frame))
        for filename, _, name in (coroutine and coroutine.cr_origin) or ():
            yield name_function(filename, name)
        frame = frame.f_back


@pytest.mark.usefixtures("db")
async def test_a_plain_call_runs_the_functions_of_the_documentation(settings: Any) -> None:
    settings.ALLOWED_HOSTS = ["localhost"]
    settings.MCP = {"AUTH": "none"}
    server, passed = Server("plain"), set[Function | None]()

    @server.tool
    async def look() -> str:
        passed.update(iter_callers(sys._getframe(1)))
        return "seen"

    endpoint = StreamableHTTPEndpoint(build_services(server.bind(get_ports("plain"))))
    params = {"name": "look", "arguments": {}, "_meta": ENVELOPE}
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}).encode()
    headers = {
        "host": "localhost",
        "content-type": "application/json",
        "accept": "*/*",
        "mcp-protocol-version": STATELESS,
        "mcp-method": "tools/call",
        "mcp-name": "look",
    }
    scope = {
        "type": "http",
        "method": "POST",
        "path": "/mcp",
        "headers": [(name.encode(), value.encode()) for name, value in headers.items()],
        "client": ("127.0.0.1", 1),
    }
    sent: list[MutableMapping[str, Any]] = []

    async def receive() -> dict[str, Any]:
        if not sent:
            return {"type": "http.request", "body": body}
        return await asyncio.get_running_loop().create_future()  # type: ignore[no-any-return]  # never set

    async def send(message: MutableMapping[str, Any]) -> None:
        sent.append(message)

    depth = sys.get_coroutine_origin_tracking_depth()
    sys.set_coroutine_origin_tracking_depth(50)
    try:
        await StreamableHTTPApp(endpoint)(scope, receive, send)
    finally:
        sys.set_coroutine_origin_tracking_depth(depth)
    assert sent[0]["status"] == 200, sent

    functions = passed - {None, ("transports/http/asgi.py", "__call__")}
    assert functions == set(ROW.findall(PAGE.read_text(encoding="utf-8")))
    assert len(functions) <= MAX_FUNCTIONS
    assert len({function[0] for function in functions if function is not None}) <= MAX_FILES
