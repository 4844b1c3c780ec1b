"""The reference: generated from the code, complete, and up to date."""

import argparse
import importlib
import inspect
import pkgutil
import re
from dataclasses import fields, is_dataclass
from pathlib import Path

import pytest
from django.dispatch import Signal

import mcp_django.conf
from mcp_django import signals as package_signals
from mcp_django.conf import _SECTIONS
from mcp_django.extensions.primitives import Rate
from scripts.reference import __main__ as reference
from scripts.reference.api import MAX_BODY_LINES, PAGES, list_pages, render_api
from scripts.reference.commands import _render_action, list_commands, render_commands
from scripts.reference.errors import REMEDIES, list_protocol_errors
from scripts.reference.limits import EFFECTS
from scripts.reference.settings import NOT_KEYS, SECTIONS, describe_fields, render_settings
from scripts.reference.signals import list_signals
from scripts.reference.sources import MARK, list_options, write_docstring, write_signature
from tests.repository.pages import ROOT
from tests.repository.test_public_api_snapshot import MODULES

DOCUMENTED = {section.options for section in SECTIONS}


def test_the_pages_are_up_to_date() -> None:
    outdated = list(reference.find_outdated(ROOT / "docs" / "reference", reference.render_pages()))
    assert outdated == [], "run: make reference"


def test_each_generated_page_has_the_mark() -> None:
    for path, text in reference.render_pages().items():
        assert MARK in text, path


def test_the_check_reports_an_outdated_page(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(reference, "FOLDER", tmp_path)
    monkeypatch.setattr(reference, "render_pages", lambda: {"settings.md": "new", "api/index.md": "names"})
    assert reference.main(["--check"]) == 1
    assert "settings.md is out of date" in capsys.readouterr().out

    assert reference.main([]) == 0
    assert reference.main(["--check"]) == 0
    (tmp_path / "settings.md").write_text("old", encoding="utf-8")
    assert reference.main(["--check"]) == 1

    (tmp_path / "api" / "removed.md").write_text("a name of yesterday", encoding="utf-8")
    assert reference.main([]) == 0
    assert not (tmp_path / "api" / "removed.md").exists()


def test_every_public_name_is_on_one_page() -> None:
    shown = [getattr(importlib.import_module(page.module), name) for page, names in list_pages() for name in names]
    assert len({id(value) for value in shown}) == len(shown)
    missing = [
        f"{module}.{name}"
        for module in MODULES
        for name in importlib.import_module(module).__all__
        if not any(getattr(importlib.import_module(module), name) is value for value in shown)
    ]
    assert missing == []


def test_pages_of_names_have_a_guide_and_a_bounded_length() -> None:
    assert [page.guide for page in PAGES if not (ROOT / "docs" / page.guide).is_file()] == []
    long = {
        path: lines for path, text in render_api().items() if (lines := len(text.splitlines())) > MAX_BODY_LINES + 15
    }
    assert long == {}


async def example(self: object, a: "int", /, b: str = "x", *args: int, c: bool = False, **kwargs: str) -> None:
    """An example."""


def test_signatures_are_those_of_the_source() -> None:
    assert write_signature(mcp_django.ToolResult, "ToolResult").startswith("class ToolResult(\n    content: ")
    assert "is_error: bool = False, meta: JSONMapping = …" in write_signature(mcp_django.ToolResult, "X")
    assert write_signature(example, "example") == (
        "async example(a: int, /, b: str = 'x', *args: int, c: bool = False, **kwargs: str) -> None"
    )
    assert write_signature(Rate, "Rate") == "class Rate(times: int, seconds: int)"
    assert list_options(example) == {}
    assert list_options(mcp_django.tool)["title"] == "str"


def test_docstrings_become_markdown() -> None:
    text = """Return ``x`` of <y>.

    Raises:
        KeyError: there is `<none>`,
            or two.
        ValueError: a number.
    """
    assert write_docstring(text) == (
        "Return `x` of &lt;y>.\n\nRaises:\n\n- `KeyError`: there is `<none>`,\n  or two.\n- `ValueError`: a number."
    )


def test_every_command_and_argument_is_on_the_page() -> None:
    page = "".join(render_commands().values())
    for path in (ROOT / "mcp_django").rglob("management/commands/mcp_*.py"):
        assert f"\n## {path.stem}\n" in page
    assert len(list_commands()) == page.count("\n## ")
    assert "| `--user USER` |  | username to act as" in page


def test_arguments_show_their_values_and_defaults(subtests: pytest.Subtests) -> None:
    parser = argparse.ArgumentParser()
    for action, line in (
        (parser.add_argument("name", help="a name"), "| `NAME` | required | a name |"),
        (parser.add_argument("more", nargs="?", default="x", help="more"), "| `[MORE]` | `x` | more |"),
        (parser.add_argument("--flag", action="store_true", help="a|b"), "| `--flag` |  | a\\|b |"),
        (parser.add_argument("--kind", choices=["a", "b"]), "| `--kind KIND` |  | one of `a`, `b` |"),
    ):
        with subtests.test(line=line):
            assert _render_action(action) == line


def test_every_signal_is_on_the_page_with_its_purpose() -> None:
    assert set(list_signals()) == {name for name, value in vars(package_signals).items() if isinstance(value, Signal)}
    assert [name for name, text in list_signals().items() if not text.startswith("Signal that ")] == []


def test_every_protocol_error_has_a_remedy() -> None:
    assert {cls.__name__ for cls in list_protocol_errors()} == set(REMEDIES)
    assert all(inspect.getdoc(cls) for cls in list_protocol_errors())


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
    pages = render_settings()
    headings = {
        f"{path}#{line.removeprefix('## ').lower().replace(' ', '-')}"
        for path, page in pages.items()
        for line in page.splitlines()
        if line.startswith("## ")
    }
    assert set(re.findall(r"\]\(([a-z-]+\.md#[a-z_-]+)\)", pages["settings.md"])) == headings


def test_every_limit_and_rate_has_an_effect() -> None:
    keys = {
        option.name.upper() for section in SECTIONS if section.page == "limits.md" for option in fields(section.options)
    }
    assert keys == set(EFFECTS)
    assert [key for key, effect in EFFECTS.items() if not effect] == ["CACHE", "NUM_PROXIES"]


def test_the_glossary_has_at_most_thirty_terms_of_one_sentence() -> None:
    page = (ROOT / "docs" / "reference" / "glossary.md").read_text(encoding="utf-8")
    terms = re.findall(r"^\| ([^|]+) \| ([^|]+) \|$", page, re.MULTILINE)[1:]
    assert len(terms) <= 30
    assert [term for term, _ in terms] == sorted((term for term, _ in terms), key=str.lower)
    assert [term for term, meaning in terms if len(re.findall(r"[.!?](?=\s|$)", meaning)) != 1] == []
