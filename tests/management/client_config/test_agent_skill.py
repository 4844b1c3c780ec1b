"""The skill for coding agents: valid, true, and written into a project without loss."""

import re
import sys
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import Group, Permission, User
from django.core.management import CommandError, call_command

from mcp_django import Server
from mcp_django.contrib.skills.packages import read_package
from mcp_django.management.client_config.agent_skill import SKILL_NAME, read_files
from mcp_django.management.client_config.catalogue import CLIENT_PROGRAMS
from mcp_django.schema.frontmatter import find_ambiguous_values
from mcp_django.testing import TestClient
from tests.repository.pages import ROOT, python_blocks, served_by
from tests.server.client import make_server

SOURCE = ROOT / "mcp_django" / "management" / "client_config" / "skills" / SKILL_NAME


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    manage = tmp_path / "manage.py"
    manage.write_text("")
    monkeypatch.setattr(sys, "argv", [str(manage), "mcp_install"])
    return tmp_path


def install(*arguments: str) -> str:
    err = StringIO()
    call_command("mcp_install", *arguments, stdout=StringIO(), stderr=err)
    return err.getvalue()


def test_the_skill_is_valid_and_its_links_lead_to_files() -> None:
    package = read_package(SOURCE)
    assert package.manifest.name == SKILL_NAME
    assert package.skipped == ()
    text = package.files["SKILL.md"].decode()
    assert find_ambiguous_values(text.encode()) == []
    assert set(re.findall(r"\]\((.+?)\)", text)) == set(package.files) - {"SKILL.md"}


@pytest.mark.parametrize("client", sorted(set(CLIENT_PROGRAMS) - {"claude"}))
def test_the_skill_is_written_and_removed(site: Path, client: str) -> None:
    target = site / CLIENT_PROGRAMS[client].skills / SKILL_NAME
    assert "Wrote" in install(client, "--skills")
    assert read_files(target) == read_files()
    assert [path.name for path in target.parent.iterdir()] == [SKILL_NAME]
    assert "Nothing to do" in install(client, "--skills")
    assert "Removed" in install(client, "--skills", "--remove")
    assert not target.exists()
    assert "Nothing to do" in install(client, "--skills", "--remove")


def test_changes_of_the_project_are_kept(site: Path) -> None:
    target = site / ".claude" / "skills" / SKILL_NAME
    install("claude-code", "--skills")
    (target / "SKILL.md").write_text("ours")
    for more in ([], ["--remove"]):
        with pytest.raises(CommandError, match="Add --write to discard"):
            install("claude-code", "--skills", *more)
    assert (target / "SKILL.md").read_text() == "ours"
    install("claude-code", "--skills", "--write")
    assert read_files(target) == read_files()


def test_a_link_and_a_client_without_skills_are_refused(site: Path) -> None:
    (site / ".claude" / "skills").mkdir(parents=True)
    (site / ".claude" / "skills" / SKILL_NAME).symlink_to(site)
    for more in ([], ["--write"], ["--remove", "--write"]):
        with pytest.raises(CommandError, match="was left unchanged"):
            install("claude-code", "--skills", *more)
    with pytest.raises(CommandError, match="reads no skills"):
        install("claude", "--skills")


def _serve(path: str, monkeypatch: pytest.MonkeyPatch) -> Server:
    (block,) = python_blocks(SOURCE / path)
    _, registry = served_by(block, monkeypatch)
    return make_server(registry=registry)


@pytest.mark.django_db
async def test_its_examples_work(monkeypatch: pytest.MonkeyPatch) -> None:
    clerk = await User.objects.acreate(username="clerk", email="c@example.com")
    for codename in ("view_user", "view_group"):
        await clerk.user_permissions.aadd(await Permission.objects.aget(codename=codename))
    stranger = await User.objects.acreate(username="stranger")
    await Group.objects.acreate(name="internal")
    await Group.objects.acreate(name="staff")

    async def call(path: str, name: str, user: Any) -> Any:
        return (await TestClient(_serve(path, monkeypatch), user=user).call_tool(name))["structuredContent"]

    assert await call("SKILL.md", "count_users", clerk) == {"result": 2}
    assert (await call("references/permissions.md", "own_profile", clerk))["username"] == "clerk"
    groups = await call("references/models.md", "group_list", clerk)
    assert [row["name"] for row in groups["items"]] == ["staff"]
    for path in ("SKILL.md", "references/permissions.md", "references/models.md"):
        assert await TestClient(_serve(path, monkeypatch), user=stranger).list_tools() == []
