"""The message catalogues: complete, up to date, compiled, and used by Django."""

import io
from collections.abc import Iterator
from pathlib import Path

import pytest
from babel.messages import Catalog
from babel.messages.pofile import read_po
from django.utils import translation
from django.utils.functional import Promise

from mcp_django.models import PersonalAccessToken
from scripts import messages
from scripts.messages import COMMAND, extract_messages, find_problems, list_locales, read_catalog, write_catalog

COMPLETE_LOCALES: tuple[str, ...] = ("de", "es", "fr", "ja", "pt_BR", "zh_Hans")
"""Locales whose catalogues must be complete. Add a locale as soon as its catalogue is."""


@pytest.fixture(scope="module")
def template() -> Catalog:
    """The texts that are marked in the package."""
    return extract_messages()


def test_every_catalogue_is_complete_and_up_to_date(template: Catalog, subtests: pytest.Subtests) -> None:
    assert set(COMPLETE_LOCALES) <= set(list_locales())
    for locale in COMPLETE_LOCALES:
        with subtests.test(locale=locale):
            problems = "\n".join(find_problems(locale, template))
            assert not problems, f"run: {COMMAND}, then translate in mcp_django/locale/{locale}:\n{problems}"


def test_the_extraction_finds_texts_of_python_and_of_templates(template: Catalog) -> None:
    places = {path for message in template for path, _line in message.locations}
    assert {"mcp_django/admin/session.py", "mcp_django/contrib/oauth/templates/mcp_oauth/authorize.html"} <= places
    # A lazy text, a plural, a context and a block with a placeholder
    assert template.get("personal access token") is not None
    assert template.get(("%d session was ended.", "%d sessions were ended.")) is not None
    assert template.get("%(first)s and %(last)s", context="a list of names") is not None
    assert template.get("Connect <bdi>%(name)s</bdi>") is not None


ENTRIES: list[tuple[str, str | None]] = [
    ('msgid "%(n)s rows"\nmsgstr "%(n)s Zeilen"\n', None),
    ("", "missing: '%(n)s rows'"),
    ('msgid "%(n)s rows"\nmsgstr ""\n', "untranslated: '%(n)s rows'"),
    ('#, fuzzy\nmsgid "%(n)s rows"\nmsgstr "%(n)s Zeilen"\n', "fuzzy: '%(n)s rows'"),
    ('msgid "%(n)s rows"\nmsgstr "%(m)s Zeilen"\n', "placeholders: '%(n)s rows' and '%(m)s Zeilen'"),
    ('msgid "%(n)s rows"\nmsgstr "<b>%(n)s</b> Zeilen"\n', "placeholders: '%(n)s rows' and '<b>%(n)s</b> Zeilen'"),
    ('msgid "%(n)s rows"\nmsgstr "%(n)s Zeilen"\n\nmsgid "old"\nmsgstr "alt"\n', "unused: 'old'"),
    ('msgid "%(n)s rows"\nmsgstr "%(n)s Zeilen"\n\n#~ msgid "old"\n#~ msgstr "alt"\n', "obsolete: 'old'"),
]


def test_the_check_finds_what_is_wrong_with_an_entry(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, subtests: pytest.Subtests
) -> None:
    template = Catalog()
    template.add("%(n)s rows")
    monkeypatch.setattr(messages, "LOCALES", tmp_path)
    (tmp_path / "de" / "LC_MESSAGES").mkdir(parents=True)
    for entry, problem in ENTRIES:
        with subtests.test(entry=entry):
            write_catalog("de", read_po(io.BytesIO(entry.encode()), locale="de"))
            found = [text for text in find_problems("de", template) if "django.mo" not in text]
            assert found == ([] if problem is None else [problem])


PLURALS: list[tuple[str, str, str, bool]] = [
    ("de", "eine Zeile", "%(n)s Zeilen", True),
    ("de", "%(n)s Zeile", "%(n)s Zeilen", True),
    ("de", "%(n)s Zeile", "Zeilen", False),
    ("de", "%(n)s Zeile", "", False),
    ("ja", "%(n)s行", "", True),
    ("ja", "一行", "", False),
]


def test_a_singular_may_leave_out_the_number(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, subtests: pytest.Subtests
) -> None:
    template = Catalog()
    template.add(("one row", "%(n)s rows"))
    monkeypatch.setattr(messages, "LOCALES", tmp_path)
    for locale, first, second, is_valid in PLURALS:
        with subtests.test(locale=locale, first=first, second=second):
            catalog = Catalog(locale=locale, fuzzy=False)
            catalog.add(("one row", "%(n)s rows"), (first, second)[: catalog.num_plurals])
            (tmp_path / locale / "LC_MESSAGES").mkdir(parents=True, exist_ok=True)
            write_catalog(locale, catalog)
            assert (list(find_problems(locale, template)) == []) is is_valid


def test_the_command_adds_updates_and_compiles_catalogues(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    template = Catalog()
    template.add("Done.")
    monkeypatch.setattr(messages, "LOCALES", tmp_path)
    monkeypatch.setattr(messages, "extract_messages", lambda: template)
    assert messages.main(["--add", "pt_BR"]) == 0
    assert messages.main(["--check"]) == 1
    assert "untranslated: 'Done.'" in capsys.readouterr().out

    catalog = read_catalog("pt_BR")
    catalog["Done."].string = "Pronto."
    catalog.add("old", "velho")
    write_catalog("pt_BR", catalog)
    assert messages.main([]) == 0
    assert messages.main(["--check"]) == 0
    assert read_catalog("pt_BR").get("old") is None

    path = tmp_path / "pt_BR" / "LC_MESSAGES" / "django.po"
    path.write_text(path.read_text(encoding="utf-8").replace("Pronto.", "Feito."), encoding="utf-8")
    assert messages.main(["--check"]) == 1
    assert "django.mo differs from django.po" in capsys.readouterr().out


def test_django_uses_the_catalogues(subtests: pytest.Subtests) -> None:
    for locale in COMPLETE_LOCALES:
        with subtests.test(locale=locale), translation.override(translation.to_language(locale)):
            expected = read_catalog(locale).get("personal access tokens")
            assert expected is not None
            assert str(PersonalAccessToken._meta.verbose_name_plural) == expected.string != expected.id


def test_no_text_is_translated_when_its_module_is_imported() -> None:
    # `_("… %d …") % LIMIT` in a class body gives a plain text, in the language of the import.
    texts = list(_list_form_texts())
    assert len(texts) > 10
    assert [f"{where}: {text}" for where, text in texts if text and not isinstance(text, Promise)] == []


def _list_form_texts() -> Iterator[tuple[str, object]]:
    from django.contrib import admin

    for model_admin in admin.site._registry.values():
        form = model_admin.form
        if form.__module__.startswith("mcp_django"):
            for name, field in form.declared_fields.items():
                yield f"{form.__name__}.{name}", field.label
                yield f"{form.__name__}.{name}", field.help_text
