"""Requests of the playground for its page, and their answers."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from asgiref.sync import async_to_sync

from mcp_django import wiring
from mcp_django.extensions.callers import DjangoPrincipal
from mcp_django.extensions.calls import InProcessClient, InProcessProfile
from mcp_django.extensions.errors import MCPError, Overloaded
from mcp_django.protocol.display_text import escape_json
from mcp_django.transports.inprocess.exchange import iter_entries

CLIENT: Mapping[str, str] = {"name": "mcp_django playground", "version": "1"}
PAGE_PROFILE = InProcessProfile(client_info=CLIENT, log_level=None)
"""Client that loads the lists of the page. It answers no questions."""
OVERLOADED_CODE = -32000
MAX_PAGES = 100
"""Maximum pages of a list that are read."""


@dataclass(frozen=True, slots=True)
class Exchange:
    """Answer to a request: a result or an error."""

    result: Mapping[str, Any] | None = None
    error: Mapping[str, Any] | None = None

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


def send(alias: str, principal: DjangoPrincipal, method: str, params: Mapping[str, Any]) -> Exchange:
    """Send a request through the whole server, with the rights of the principal. Blocks."""
    client = InProcessClient(wiring.get_server(alias), principal, PAGE_PROFILE)
    try:
        return Exchange(async_to_sync(client.request)(method, params))
    except MCPError as problem:
        error = {"code": problem.code, "message": problem.message}
        return Exchange(error=error if problem.data is None else {**error, "data": problem.data})
    except Overloaded as problem:
        return Exchange(error={"code": OVERLOADED_CODE, "message": str(problem)})


def list_all(alias: str, principal: DjangoPrincipal, method: str, member: str) -> list[dict[str, Any]]:
    """Return the entries of a list as the principal sees it, up to the first page that fails. Blocks.

    `member` is the name of the entries in the results.
    """
    client = InProcessClient(wiring.get_server(alias), principal, PAGE_PROFILE)
    entries: list[dict[str, Any]] = []

    async def collect() -> None:
        async for entry in iter_entries(client.request, method, member, max_pages=MAX_PAGES):
            entries.append(entry)  # noqa: PERF401  # a page that fails leaves those of earlier pages

    try:
        async_to_sync(collect)()
    except (MCPError, Overloaded):
        pass
    return entries


def format_json(value: Any) -> str:
    """Return a value as readable JSON."""
    return escape_json(json.dumps(value, indent=2, ensure_ascii=False))
