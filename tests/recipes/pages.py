"""The blocks of a recipe, and a client of the tools that they declare."""

from types import ModuleType
from typing import Any

import pytest

from mcp_django.server.server import Server
from mcp_django.testing import TestClient
from tests.repository.pages import ROOT, python_blocks, served_by

RECIPES = ROOT / "docs" / "recipes"


def block_with(page: str, text: str) -> str:
    """Return the one block of Python on a page that contains the text."""
    (found,) = (block for block in python_blocks(RECIPES / f"{page}.md") if text in block)
    return found


class Recipe:
    """A served block of a recipe."""

    def __init__(self, page: str, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
        self.module: ModuleType
        self.module, registry = served_by(block_with(page, text), monkeypatch)
        assert registry.problems == []
        self.registry = registry

    def client(self, user: Any = None, *, middleware: Any = (), **options: Any) -> TestClient:
        """Return a client of a server with the declared primitives."""
        return TestClient(Server("docs", "1", registry=self.registry, middleware=middleware), user=user, **options)


def settings_with(page: str, text: str) -> dict[str, Any]:
    """Return the `MCP` setting of the one block with settings that contains the text."""
    blocks = [block for block in python_blocks(RECIPES / f"{page}.md") if "MCP = {" in block and text in block]
    found: dict[str, Any] = {}
    (block,) = blocks
    exec(block, found)
    setting: dict[str, Any] = found["MCP"]
    return setting
