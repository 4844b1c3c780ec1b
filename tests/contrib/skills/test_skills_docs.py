"""The examples of docs/expose/skills.md, served."""

import re
from pathlib import Path
from typing import Any

import pytest
from django.apps import apps
from django.core.management import call_command
from django.core.management.base import SystemCheckError

from mcp_django import wiring
from mcp_django.contrib.skills import StoredSkills
from mcp_django.contrib.skills.trees import SKIPPED_NAMES
from mcp_django.testing import TestClient
from tests.contrib.skills.folders import list_entries, serve, write, write_skill
from tests.repository.pages import ROOT, python_blocks, served_by
from tests.server.client import PipelineClient, make_principal, make_server

PAGE = ROOT / "docs" / "expose" / "skills.md"
BLOCKS = python_blocks(PAGE)


async def test_the_example_skill_of_an_app_is_served(
    tmp_path: Path, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    matched = re.search(r"```markdown\n<!-- (\S+) -->\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert matched is not None
    write(tmp_path, {matched[1].removeprefix("shop/"): matched[2].encode()})
    monkeypatch.setattr(apps.get_app_config("shop"), "path", str(tmp_path))
    found: dict[str, Any] = {}
    exec(BLOCKS[0], found)
    settings.MCP = {"AUTH": "none", "SERVERS": {"default": {**found["MCP"]["SERVERS"]["default"], "STORED": False}}}
    assert not list(wiring.get_server().providers[0].check())
    client = TestClient(wiring.get_server())
    (skill,) = (await client.request("skills/list"))["skills"]
    assert skill["uri"] == "skill://shop/refunds/SKILL.md"


def test_a_broken_skill_is_reported_by_the_command(
    tmp_path: Path, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_skill(tmp_path / "skills", "Bad")
    monkeypatch.setattr(apps.get_app_config("shop"), "path", str(tmp_path))
    settings.MCP = {"SERVERS": {"default": {"PROVIDERS": ["mcp_django.contrib.skills.AppSkills"]}}}
    with pytest.raises(SystemCheckError, match=r"mcp_skills\.E001"):
        call_command("check")


async def test_the_example_folders_are_served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write_skill(tmp_path / "handbook" / "skills", "returns")
    module, _ = served_by(BLOCKS[1], monkeypatch)
    server = serve(module.shop_skills, module.handbook)
    clerk = PipelineClient(server, make_principal("shop.view_order"))
    assert list(await list_entries(clerk)) == ["skill://handbook/returns/SKILL.md"]
    assert await list_entries(PipelineClient(server, make_principal())) == {}


def test_the_example_settings_of_stored_skills_work(settings: Any) -> None:
    found: dict[str, Any] = {}
    exec(BLOCKS[2], found)
    settings.MCP = {"AUTH": "none", **found["MCP"]}
    assert any(isinstance(provider, StoredSkills) for provider in wiring.get_server().providers)


async def test_the_example_function_and_fallbacks_work(monkeypatch: pytest.MonkeyPatch) -> None:
    _, registry = served_by(BLOCKS[3], monkeypatch)
    module, _ = served_by(BLOCKS[4], monkeypatch)
    server = make_server(registry=registry, extensions=[module.skills])
    clerk = PipelineClient(server, make_principal("shop.view_product"))
    assert await clerk.names("prompts/list", "prompts") == ["stock-report"]
    (text, _) = (await clerk.call("load_skill", skill="stock-report"))["content"]
    assert "# Stock for" in text["text"]


async def test_the_example_test_of_a_skill_works(
    tmp_path: Path, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_skill(tmp_path / "skills", "refunds", "Call `orders_search`.")
    monkeypatch.setattr(apps.get_app_config("shop"), "path", str(tmp_path))
    found: dict[str, Any] = {}
    exec(BLOCKS[0], found)
    settings.MCP = {"AUTH": "none", "SERVERS": {"default": {**found["MCP"]["SERVERS"]["default"], "STORED": False}}}
    exec(BLOCKS[5], found)
    await found["test_the_skill_of_refunds_names_its_tools"]()


def test_the_page_names_each_skipped_name() -> None:
    text = PAGE.read_text()
    assert all(f"`{name}`" in text for name in SKIPPED_NAMES)
