"""Statements of docs/protect/oauth-clients.md, compared with the code."""

import re
import shlex
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth import get_user_model
from django.core.management import call_command, get_commands, load_command_class
from oauth2_provider.models import Application

from mcp_django import conf
from mcp_django.contrib.oauth import redirects
from mcp_django.contrib.oauth.clients import client_metadata, documents
from mcp_django.contrib.oauth.options import OAuthSettings

PAGE = (Path(__file__).parents[3] / "docs" / "protect" / "oauth-clients.md").read_text()
BLOCKS = re.findall(r"```\n(.*?)```", PAGE, re.DOTALL)


def test_the_options_and_their_defaults_are_those_of_the_code() -> None:
    rows = re.findall(r"^\| `([A-Z_]+)` \| `?([^|`]+)`? \|", PAGE[PAGE.index("## Options") :], re.MULTILINE)
    assert len(rows) == 6
    defaults = OAuthSettings()
    for name, shown in rows:
        value: Any = getattr(defaults, name.lower())
        value = list(value) if isinstance(value, tuple) else value
        assert str(value).replace("'", '"') == shown


def test_the_numbers_are_those_of_the_code() -> None:
    assert (
        f"at most {redirects.MAX_REDIRECT_URIS} uris, of {redirects.MAX_REDIRECT_URI_CHARS:,} characters"
        in PAGE.lower()
    )
    assert f"at most {client_metadata.MAX_METADATA_BYTES // 1024} KB" in PAGE
    assert f"at most {client_metadata.MAX_NAME_CHARS} characters" in PAGE
    assert f"takes at most {documents.FETCH_TIMEOUT_SECONDS:g} seconds" in " ".join(PAGE.split())
    assert f"{documents.MAX_URL_CHARS} characters" in PAGE
    assert (documents.MIN_LIFETIME_SECONDS, documents.DEFAULT_LIFETIME_SECONDS, documents.MAX_LIFETIME_SECONDS) == (
        300,
        3600,
        86400,
    )
    assert f"{documents.STALE_DOCUMENT_LIFETIME.days} more days" in PAGE
    assert f"{documents.USER_FETCH_RATE.times} a minute for a user" in PAGE
    assert f"{documents.TOTAL_FETCH_RATE.times} in all, {documents.MAX_CONCURRENT_FETCHES} at once" in PAGE


def test_the_settings_are_accepted(settings: Any) -> None:
    (block,) = [block for block in BLOCKS if block.startswith("MCP =")]
    found: dict[str, Any] = {}
    exec(block, found)
    settings.MCP = found["MCP"]
    assert not list(conf.get_problems())


@pytest.mark.django_db
def test_the_commands_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    get_user_model().objects.create(username="reports")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "client.json").write_text(
        '{"client_id": "https://vendor.example/client.json", "client_name": "V", "redirect_uris": ["https://v.example/"]}'
    )
    lines = [line for block in BLOCKS for line in block.splitlines() if line.startswith("manage.py ")]
    assert len(lines) == 5
    for line in lines:
        call_command(*shlex.split(line)[1:])
    assert Application.objects.count() == 5


def test_the_named_commands_exist() -> None:
    for name in set(re.findall(r"mcp_\w+client\w*", PAGE)):
        assert load_command_class(get_commands()[name], name).help
