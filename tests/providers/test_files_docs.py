"""The examples of docs/expose/files.md, served."""

from pathlib import Path
from typing import Any

import pytest

from mcp_django.protocol.errors import ResourceNotFound
from mcp_django.server.options import ServerOptions
from mcp_django.server.server import Server
from tests.repository.pages import ROOT, python_blocks, served_by
from tests.server.client import PipelineClient, make_principal, make_server, ports

BLOCKS = python_blocks(ROOT / "docs" / "expose" / "files.md")


async def test_files_are_served_as_documented(tmp_path: Path, settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    settings.BASE_DIR = tmp_path
    (tmp_path / "handbook").mkdir()
    (tmp_path / "handbook" / "intro.md").write_text("Welcome")
    (tmp_path / "terms.txt").write_text("No refunds")
    module, _ = served_by(BLOCKS[0], monkeypatch)
    server = make_server(providers=[module.handbook, module.terms, module.invoices])
    uris = await PipelineClient(server, make_principal("shop.view_order")).names("resources/list", "resources", "uri")
    assert uris[:2] == ["handbook://intro.md", "shop://terms"]
    with pytest.raises(ResourceNotFound):
        await PipelineClient(server, make_principal()).request("resources/read", {"uri": "handbook://intro.md"})


async def test_pages_are_served_as_documented(monkeypatch: pytest.MonkeyPatch) -> None:
    module, _ = served_by(BLOCKS[2], monkeypatch)
    uris = await PipelineClient(make_server(providers=[module.rates, module.manual])).names(
        "resources/list", "resources", "uri"
    )
    assert uris == ["manual://index.html", "manual://returns.html", "rates://latest"]


async def test_a_tool_reports_why_a_fetch_was_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    _, found = served_by(BLOCKS[3], monkeypatch)
    peer = PipelineClient(Server("docs", "1", registry=found, ports=ports(), options=ServerOptions()))
    told = await peer.error("read_page", url="https://127.0.0.1/")
    assert told == "The page cannot be read, because its host is not on the public internet."
