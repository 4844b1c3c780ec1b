"""The examples of docs/use-servers/transports.md run."""

import sys
from typing import Any

import pytest

from mcp_django.client.transports.targets import StreamableHTTP, WebSocket
from tests.client.listeners import Exchange, exchanges, listening
from tests.repository.pages import ROOT, python_blocks

BLOCKS = python_blocks(ROOT / "docs" / "use-servers" / "transports.md")
TARGETS, AUTHORITIES, STDIO, TICKET = BLOCKS


def run(block: str) -> dict[str, Any]:
    names: dict[str, Any] = {}
    exec(block, names)
    return names


def test_the_targets_of_the_page_are_valid() -> None:
    names = run(TARGETS)
    shown = repr([names[name] for name in ("weather", "older", "live", "files")])
    assert shown == (
        "[StreamableHTTP('https://weather.example.com/mcp'), SSE('https://old.example.com/sse'), "
        "WebSocket('wss://example.com/mcp/ws'), Stdio('npx')]"
    )


def test_a_context_names_the_authorities() -> None:
    target = run(AUTHORITIES)["inside"](None)
    assert isinstance(target, StreamableHTTP)
    assert target.ssl_context is not None


async def test_a_ticket_is_fetched_for_a_handshake(monkeypatch: pytest.MonkeyPatch) -> None:
    async def give(exchange: Exchange) -> None:
        assert (exchange.path, exchange.headers["authorization"][:7]) == ("/mcp/ws-ticket", "Bearer ")
        await exchange.answer(200, '{"ticket": "t1"}', content_type="application/json")

    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    async with listening(exchanges(give)) as port:
        origin = f"http://127.0.0.1:{port}"
        names = run(TICKET.replace('TOKEN = "…"', 'TOKEN = "x"').replace("https://example.com", origin))
        assert isinstance(names["live"], WebSocket)
        assert await names["live"].ticket() == "t1"


async def test_the_end_of_a_command_is_an_error() -> None:
    said = await run(STDIO)["check"](sys.executable, "-c", "raise SystemExit(7)")
    assert said.endswith("ended with exit code 7")
