"""Skills and apps in the playground."""

import re
import sys
from pathlib import Path
from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import User
from django.test import Client
from django.urls import include, path, reverse

from mcp_django.contrib.playground import acts
from mcp_django.contrib.skills import Skills
from tests.contrib.playground.test_playground import PAGE, log_in
from tests.interaction import panels
from tests.urls import urlpatterns as other_patterns

pytestmark = pytest.mark.django_db
skills: Skills
"""Provider of the test."""
urlpatterns = [*other_patterns, path("preview/", include("mcp_django.contrib.apps.preview.urls"))]
ENTRY = "skill://shop/refunds/SKILL.md"


@pytest.fixture
def folder(tmp_path: Path, settings: Any, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a skill that the server "skilled" serves; the server "panels" has apps."""
    folder = tmp_path / "refunds"
    folder.mkdir()
    (folder / "SKILL.md").write_text("---\nname: refunds\ndescription: Refund an order.\n---\nRead <policy.md>.\n")
    (folder / "policy.md").write_text("Within 30 days.")
    (folder / "logo.png").write_bytes(b"\x89PNG\xff")
    monkeypatch.setattr(sys.modules[__name__], "skills", Skills(tmp_path, prefix="shop"), raising=False)
    settings.DEBUG = True
    settings.ROOT_URLCONF = __name__
    settings.MCP = {
        "AUTH": "none",
        "SERVERS": {
            "default": {},
            "skilled": {
                "STORED": False,
                "EXTENSIONS": ["mcp_django.contrib.skills.SkillsExtension"],
                "PROVIDERS": [f"{__name__}.skills"],
            },
            panels.SERVER: {"STORED": False, "EXTENSIONS": ["mcp_django.contrib.apps.Apps"]},
        },
        "RECORD": {"ROLLUPS": False, "CALLS": "none", "RUNNING": False},
        "PLAYGROUND": {"ENABLED": True},
    }
    return folder


def open_page(browser: Client, server: str, kind: str, name: str = "", **query: str) -> Any:
    query = {"server": server, "kind": kind, **({"name": name} if name else {}), **query}
    answer = browser.get(reverse(PAGE, query=query))
    assert answer.status_code == 200
    return answer


def test_files_of_skills_are_listed_read_and_verified(folder: Path) -> None:
    browser = log_in("use_playground")
    page = open_page(browser, "skilled", "skills", ENTRY)
    assert "Refund an order." in page.content.decode()
    assert [(row.path, row.size, row.is_verified) for row in page.context["skill_files"]] == [
        ("SKILL.md", (folder / "SKILL.md").stat().st_size, False),
        ("logo.png", 5, False),
        ("policy.md", 15, False),
    ]
    assert not LogEntry.objects.exists()
    page = open_page(browser, "skilled", "skills", ENTRY, file="SKILL.md").content.decode()
    assert "Read &lt;policy.md&gt;." in page
    assert "verified" in page
    assert LogEntry.objects.get().object_repr == f"resources/read {ENTRY} SKILL.md (skilled)"
    rows = open_page(browser, "skilled", "skills", ENTRY, file="*").context["skill_files"]
    assert all(row.is_verified and row.text is None for row in rows)
    assert "This file is not text" in open_page(browser, "skilled", "skills", ENTRY, file="logo.png").content.decode()


def test_a_file_that_differs_from_its_entry_is_not_verified(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mcp_django.contrib.playground.skills.decode_contents", lambda result, uri: b"x")
    page = open_page(log_in("use_playground"), "skilled", "skills", ENTRY, file="*")
    rows = page.context["skill_files"]
    assert not any(row.is_verified for row in rows)
    assert "has 1 bytes instead of 5" in page.content.decode()


def test_kinds_of_extensions_are_those_of_the_server(folder: Path) -> None:
    browser = log_in("use_playground")
    kinds = {
        server: [kind.name for kind in open_page(browser, server, "tools").context["kinds"]]
        for server in ("default", "skilled", panels.SERVER)
    }
    assert kinds == {
        "default": ["tools", "resources", "prompts"],
        "skilled": ["tools", "resources", "prompts", "skills"],
        panels.SERVER: ["tools", "resources", "prompts", "apps"],
    }
    assert open_page(browser, "default", "skills").context["entries"] == []


def test_an_app_opens_in_the_preview_which_acts_as_the_operator(
    folder: Path, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    browser = log_in("use_playground", "use_playground_as")
    User.objects.create_user("ada")
    names = [entry.key for entry in open_page(browser, panels.SERVER, "apps").context["entries"]]
    assert names
    page = open_page(browser, panels.SERVER, "apps", names[0]).content.decode()
    link = re.search(r'<a href="(/preview/[^"]*)">Open its app', page)
    assert link is not None
    assert f"tool={names[0]}" in link[1]
    assert browser.get(link[1].replace("&amp;", "&")).status_code == 200

    other = open_page(browser, panels.SERVER, "apps", names[0], **{"as": "ada"}).content.decode()
    assert "/preview/" not in other
    settings.DEBUG = False
    page = open_page(browser, panels.SERVER, "tools", names[0]).content.decode()
    assert "/preview/" not in page
    assert "Its app is shown below the result." in page
    monkeypatch.setattr(acts, "can_host_apps", lambda: False)
    page = open_page(browser, panels.SERVER, "tools", names[0]).content.decode()
    assert "if mcp_django.contrib.apps is installed" in page
    assert "host.js" not in page
