"""The recipes about operation: log lines, an audit with its export, and rates."""

import csv
import io
import json
import logging
import sys
from collections.abc import Iterator
from logging.config import dictConfig
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.test.utils import isolate_apps

from mcp_django import conf
from mcp_django.auth.principal import DjangoPrincipal
from mcp_django.protocol.errors import InvalidParams
from mcp_django.signals import call_finished
from tests.recipes.pages import Recipe, block_with, settings_with


@pytest.fixture
def receivers() -> Iterator[None]:
    """Disconnect the receivers of the page after the test."""
    before = call_finished.receivers
    call_finished.receivers = list(before)
    yield
    call_finished.receivers = before
    call_finished.sender_receivers_cache.clear()


def run_block(name: str, block: str, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Run a block as a module that others can import."""
    module = ModuleType(name)
    monkeypatch.setitem(sys.modules, name, module)
    exec(block, module.__dict__)
    return module


@pytest.mark.django_db
async def test_each_call_is_a_line_and_arguments_are_chosen(
    monkeypatch: pytest.MonkeyPatch, receivers: None, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.chdir(tmp_path)
    found: dict[str, Any] = {}
    exec(block_with("who-called-what", "LOGGING"), found)
    calls = logging.getLogger("mcp_django.calls")
    before = (calls.level, calls.propagate)
    dictConfig(found["LOGGING"])
    module = run_block("shop.receivers", block_with("who-called-what", "write_line"), monkeypatch)
    ada = await User.objects.acreate(username="ada", is_superuser=True)
    client = Recipe("rate-limits", "yearly_report", monkeypatch).client(ada)
    monkeypatch.setattr(module, "KEPT", {"year"})
    try:
        with caplog.at_level(logging.INFO, "shop.audit"):
            await client.call_tool("yearly_report", {"year": 1999, "password": "hunter2"})
            await client.call_tool("yearly_report", {"year": 1999})
            with pytest.raises(InvalidParams):
                await client.request("tools/call", {"name": "yearly_report", "arguments": ["hunter2"]})
            await client.list_tools()
    finally:
        [handler] = calls.handlers
        calls.removeHandler(handler)
        handler.close()
        calls.setLevel(before[0])
        calls.propagate = before[1]
    lines = [json.loads(record.getMessage()) for record in caplog.records if record.name == "shop.audit"]
    assert [line["arguments"] for line in lines] == [{"year": "1999"}, {"year": "1999"}, {}]
    assert {(line["user"], line["tool"]) for line in lines} == {("ada", "yearly_report")}
    assert [line["outcome"] for line in lines] == ["tool_error", "tool_error", "error"]
    written = (tmp_path / "calls.log").read_text(encoding="utf-8").splitlines()
    assert written[1].startswith("tools/call yearly_report: tool_error in ")
    assert f"principal=django|{ada.pk}|" in written[1]
    assert "hunter2" not in str(written)


@pytest.mark.django_db(transaction=True)
def test_an_audit_is_kept_and_exported(
    monkeypatch: pytest.MonkeyPatch, receivers: None, capsys: pytest.CaptureFixture[str]
) -> None:
    from asgiref.sync import async_to_sync

    found: dict[str, Any] = {"__name__": "tests.shop.models"}
    with isolate_apps("tests.shop"):
        exec(block_with("audit-export", "class Entry"), found)
    entries = found["Entry"]
    monkeypatch.setitem(sys.modules, "audit", ModuleType("audit"))
    models = ModuleType("audit.models")
    models.Entry = entries  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "audit.models", models)
    with connection.schema_editor() as editor:
        editor.create_model(entries)
    try:
        run_block("audit.receivers", block_with("audit-export", "add_entry"), monkeypatch)
        recipe = Recipe("rate-limits", "yearly_report", monkeypatch)
        user = User.objects.create_superuser("=HYPERLINK(1)")
        principal = DjangoPrincipal(issuer="django", subject=str(user.pk), client_id="robot", user=user)
        client = recipe.client(principal=principal)
        for year in (2024, 1999):
            async_to_sync(client.call_tool)("yearly_report", {"year": year})
        command = run_block("export", block_with("audit-export", "class Command"), monkeypatch).Command()
        command.requires_system_checks = []  # models of other tests do not belong to this project
        command.run_from_argv(["manage.py", "export_audit", f"{entries.objects.first().at:%Y-%m-%d}"])
        rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
        assert [row["outcome"] for row in rows] == ["ok", "tool_error"]
        assert (rows[0]["user"], rows[0]["client"], rows[0]["tool"]) == ("'=HYPERLINK(1)", "robot", "yearly_report")
        command.run_from_argv(["manage.py", "export_audit", "2000-01-01"])
        assert len(capsys.readouterr().out.splitlines()) == 1
    finally:
        with connection.schema_editor() as editor:
            editor.delete_model(entries)


@pytest.mark.django_db
async def test_a_tool_has_a_rate_for_each_caller(monkeypatch: pytest.MonkeyPatch, settings: Any) -> None:
    settings.MCP = settings_with("rate-limits", "RATES")
    assert conf.get_problems() == []
    recipe = Recipe("rate-limits", "yearly_report", monkeypatch)
    ada, bob = [await User.objects.acreate(username=name, is_superuser=True) for name in ("ada", "bob")]
    settings.CACHES = {"default": {"BACKEND": "django.core.cache.backends.locmem.LocMemCache"}}
    results = [await recipe.client(ada).call_tool("yearly_report", {"year": year}) for year in (2024, 1999, 2023, 2022)]
    assert [result["isError"] for result in results] == [False, True, False, True]
    assert "second" in results[-1]["content"][0]["text"]
    assert not (await recipe.client(bob).call_tool("yearly_report", {"year": 2024}))["isError"]
