"""The entries on the pages about clients: the same as those that mcp_install writes."""

import json
import re
import tomllib
from collections.abc import Callable
from typing import Any

import pytest

from mcp_django.management.client_config.catalogue import CLIENT_PROGRAMS, LocalServer, RemoteServer, TokenSource
from tests.repository.pages import ROOT

PARSERS: dict[str, Callable[[str], Any]] = {"json": json.loads, "toml": tomllib.loads}
BLOCK = re.compile(r"^ *```(json|toml)\n(.*?)^ *```", re.MULTILINE | re.DOTALL)
NEAR = RemoteServer(url="http://127.0.0.1:8000/mcp")
FAR = RemoteServer(url="https://shop.example.com/mcp")
STARTED = LocalServer(command="/srv/shop/venv/bin/python", args=["/srv/shop/manage.py", "mcp_stdio", "--user", "ada"])
TOKEN = TokenSource(variable="SHOP_TOKEN")
ENTRIES: dict[str, tuple[str, list[tuple[LocalServer | RemoteServer, TokenSource | None]]]] = {
    "claude": ("connect-claude.md", [(STARTED, None)]),
    "codex": ("connect-chatgpt.md", [(NEAR, None), (STARTED, None), (FAR, TOKEN)]),
    "vscode": ("connect-vscode.md", [(NEAR, None), (FAR, None), (FAR, TOKEN), (STARTED, None)]),
    "cursor": ("connect-cursor.md", [(FAR, None), (NEAR, None), (STARTED, None)]),
}


def read_entries(page: str) -> list[dict[str, Any]]:
    """Return the configurations on a page."""
    text = (ROOT / "docs" / "start" / page).read_text(encoding="utf-8")
    return [PARSERS[kind](body) for kind, body in BLOCK.findall(text)]


@pytest.mark.parametrize("name", ENTRIES)
def test_the_page_shows_the_entries_of_the_command(name: str) -> None:
    page, servers = ENTRIES[name]
    client = CLIENT_PROGRAMS[name]
    shown = [entry for entry in read_entries(page) if "auth" not in entry[client.section]["shop"]]
    assert shown == [{client.section: {"shop": client.build_entry(server, token)}} for server, token in servers]


def test_the_table_names_each_client_of_the_command() -> None:
    text = (ROOT / "docs" / "start" / "connect-a-client.md").read_text(encoding="utf-8")
    assert re.findall(r"(?m)^\| [^|]+ \| `([a-z-]+)` \|", text) == list(CLIENT_PROGRAMS)
