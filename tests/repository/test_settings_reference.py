"""The reference of the settings: generated from the dataclasses, complete, and up to date."""

import importlib
import pkgutil
from dataclasses import fields, is_dataclass
from pathlib import Path

import pytest

import mcp_django.conf
from mcp_django.conf import _SECTIONS
from scripts import settings_reference
from scripts.settings_reference import NOT_KEYS, PAGE, SECTIONS, describe_fields, render_page

DOCUMENTED = {section.options for section in SECTIONS}


def test_the_page_is_up_to_date() -> None:
    assert PAGE.read_text(encoding="utf-8") == render_page(), "run: python scripts/settings_reference.py"


def test_the_check_reports_an_outdated_page(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "settings.md"
    monkeypatch.setattr(settings_reference, "ROOT", tmp_path)
    monkeypatch.setattr(settings_reference, "PAGE", page)
    assert settings_reference.main(["--check"]) == 1
    assert "settings.md is out of date" in capsys.readouterr().out

    assert settings_reference.main([]) == 0
    assert settings_reference.main(["--check"]) == 0
    page.write_text("old", encoding="utf-8")
    assert settings_reference.main(["--check"]) == 1


def test_every_dataclass_of_options_is_on_the_page() -> None:
    names = [module.name for module in pkgutil.iter_modules(mcp_django.conf.__path__, "mcp_django.conf.")]
    defined = {
        value
        for name in names
        for value in vars(importlib.import_module(name)).values()
        if isinstance(value, type) and is_dataclass(value) and value.__module__ == name
    }
    assert defined - DOCUMENTED == set()


def test_every_registered_section_of_the_package_is_on_the_page() -> None:
    registered = {section for section in _SECTIONS.values() if section.__module__.startswith("mcp_django.")}
    assert registered - DOCUMENTED == set()


def test_every_option_has_a_description() -> None:
    missing = [
        f"{section.path}: {option.name}"
        for section in SECTIONS
        for option in fields(section.options)
        if (section.options, option.name) not in NOT_KEYS and not describe_fields(section.options).get(option.name)
    ]
    assert missing == []


def test_sections_are_linked_by_their_headings() -> None:
    page = render_page()
    headings = {line.removeprefix("## ").lower().replace(" ", "-") for line in page.splitlines() if line[:3] == "## "}
    linked = {part.split(")")[0] for part in page.split("](#")[1:]}
    assert linked == headings
