"""The blocks of docs/talk-back/tasks.md."""

from typing import Any

import pytest

from mcp_django import conf
from mcp_django.types import TaskOptions
from tests.repository.pages import ROOT, python_blocks, served_by

PAGE = ROOT / "docs" / "talk-back" / "tasks.md"
SETTINGS, TOOLS = python_blocks(PAGE)


def test_the_settings_of_the_page_are_valid(settings: Any) -> None:
    names: dict[str, Any] = {}
    exec(SETTINGS, names)
    settings.MCP = names["MCP"]
    assert conf.get_settings().servers["default"].extensions == ("mcp_django.contrib.tasks.Tasks",)
    assert set(names["INSTALLED_APPS"]) <= set(settings.INSTALLED_APPS)


def test_the_tools_of_the_page_are_declared(monkeypatch: pytest.MonkeyPatch) -> None:
    _, registry = served_by(TOOLS, monkeypatch)
    assert {tool.name: tool.task for tool in registry.tools} == {
        "survey": TaskOptions(),
        "export": TaskOptions(required=True),
        "rebuild_index": TaskOptions(grace=0, ttl=600, retry=1),
    }
