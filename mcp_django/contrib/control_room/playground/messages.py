"""Messages of the playground: the request that is shown is the request that is sent."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from asgiref.sync import async_to_sync

from mcp_django import wiring
from mcp_django.auth.principal import DjangoPrincipal
from mcp_django.protocol.display_text import escape_json
from mcp_django.protocol.errors import MCPError
from mcp_django.protocol.meta import CLIENT_CAPABILITIES, CLIENT_INFO, PROTOCOL_VERSION
from mcp_django.protocol.revisions import LATEST
from mcp_django.server.calls.call import Connection
from mcp_django.server.pipeline import Pipeline
from mcp_django.server.ports import Overloaded
from mcp_django.transports.inprocess import send_request

CLIENT: Mapping[str, str] = {"name": "mcp_django playground", "version": "1"}
OVERLOADED_CODE = -32000
MAX_PAGES = 100
"""Maximum pages of a list that are read."""


@dataclass(frozen=True, slots=True)
class Exchange:
    """Sent request and everything that came back."""

    request: Mapping[str, Any]
    notifications: list[Mapping[str, Any]] = field(default_factory=list)
    result: Mapping[str, Any] | None = None
    error: Mapping[str, Any] | None = None

    @property
    def request_text(self) -> str:
        """Request as it was sent."""
        return format_json(self.request)

    @property
    def answer_text(self) -> str:
        """Answer as JSON."""
        return format_json({"error": self.error} if self.error is not None else {"result": self.result})

    @property
    def error_text(self) -> str:
        """Text of an error, or of the result of a tool that failed; empty for any other answer."""
        if self.error is not None:
            return str(self.error["message"])
        if self.result is None or self.result.get("isError") is not True:
            return ""
        return "\n".join(str(one["text"]) for one in self.result.get("content", ()) if one.get("type") == "text")


def build_request(method: str, params: Mapping[str, Any]) -> dict[str, Any]:
    """Return a request of the latest revision."""
    meta = {PROTOCOL_VERSION: LATEST.version, CLIENT_CAPABILITIES: {}, CLIENT_INFO: dict(CLIENT)}
    return {"jsonrpc": "2.0", "id": 1, "method": method, "params": {**params, "_meta": meta}}


def send(alias: str, principal: DjangoPrincipal, request: Mapping[str, Any]) -> Exchange:
    """Send a request through the whole server, with the rights of the principal. Blocks."""
    pipeline = Pipeline(wiring.get_server(alias))
    notifications: list[Mapping[str, Any]] = []

    async def on_message(message: dict[str, Any]) -> None:
        notifications.append(message)

    async def run() -> dict[str, Any]:
        connection = Connection(principal)
        return await send_request(pipeline, pipeline.stateless, dict(request), connection, on_message)

    try:
        return Exchange(request, notifications, result=async_to_sync(run)())
    except MCPError as problem:
        error = {"code": problem.code, "message": problem.message}
        return Exchange(
            request, notifications, error=error if problem.data is None else {**error, "data": problem.data}
        )
    except Overloaded as problem:
        return Exchange(request, notifications, error={"code": OVERLOADED_CODE, "message": str(problem)})


def list_all(alias: str, principal: DjangoPrincipal, method: str, key: str) -> list[dict[str, Any]]:
    """Return the entries of a list as the principal sees it; empty if the server lacks it."""
    entries: list[dict[str, Any]] = []
    params: dict[str, Any] = {}
    for _ in range(MAX_PAGES):
        result = send(alias, principal, build_request(method, params)).result
        if result is None:
            break
        entries += result[key]
        if result.get("nextCursor") is None:
            break
        params = {"cursor": result["nextCursor"]}
    return entries


def format_json(value: Any) -> str:
    """Return a value as readable JSON."""
    return escape_json(json.dumps(value, indent=2, ensure_ascii=False))
