"""Extract, update and compile the message catalogues in `mcp_django/locale/`.

    python scripts/messages.py                  update and compile all catalogues
    python scripts/messages.py --add pt_BR      start a catalogue, too
    python scripts/messages.py --check          exit with status 1 if a catalogue is incomplete or out of date

One catalogue per language covers the package with its optional apps. Python files are read by Babel, templates by
Django's own conversion for extraction. Neither needs the programs of GNU gettext.
"""

import argparse
import gettext
import io
import re
import sys
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from babel import Locale
from babel.messages import Catalog, Message
from babel.messages.extract import DEFAULT_KEYWORDS, extract
from babel.messages.mofile import write_mo
from babel.messages.pofile import read_po, write_po
from django.utils.translation.template import templatize

ROOT: Final = Path(__file__).resolve().parent.parent
PACKAGE: Final = ROOT / "mcp_django"
LOCALES: Final = PACKAGE / "locale"
COMMAND: Final = "make messages"
KEYWORDS: Final = {
    **DEFAULT_KEYWORDS,
    **{f"{name}_lazy": DEFAULT_KEYWORDS[name] for name in ("gettext", "ngettext", "pgettext", "npgettext")},
    "gettext_noop": None,
}
TRANSLATOR_COMMENT: Final = "Translators:"
LINE_WIDTH: Final = 120
HEADER: Final = f"# Messages of mcp_django. Update with `{COMMAND}`, then translate the entries with an empty msgstr."
TRANSLATOR: Final = "mcp_django contributors <>"
FIRST_DATE: Final = datetime(2026, 1, 1, tzinfo=UTC)
"""Date in the header of new catalogues. Their history is in the repository."""
_PLACEHOLDER = re.compile(r"%(?:\(\w+\))?[a-z]|\{\w*\}|</?\w+[^>]*>")


def extract_messages() -> Catalog:
    """Return a catalogue with the marked texts of the package, without translations."""
    template = Catalog(project="mcp_django", charset="utf-8", fuzzy=False)
    for path in sorted([*PACKAGE.rglob("*.py"), *PACKAGE.rglob("*.html")]):
        if "migrations" in path.parts:
            continue
        place = path.relative_to(ROOT).as_posix()
        for _line, message_id, comments, context in _extract_file(path):
            template.add(message_id, locations=[(place, None)], auto_comments=comments, context=context)
    return template


def _extract_file(path: Path) -> Iterable[Any]:
    source = path.read_text(encoding="utf-8")
    if path.suffix == ".html":
        # Indentation has no meaning in a template, but it has for Python's tokenizer.
        source = re.sub(r"^[ \t]+", "", templatize(source, origin=str(path)), flags=re.MULTILINE)
    return extract("python", io.BytesIO(source.encode()), KEYWORDS, [TRANSLATOR_COMMENT], strip_comment_tags=True)


def list_locales() -> list[str]:
    """Return the names of the locales with a catalogue, such as `de` and `pt_BR`."""
    return sorted(path.parent.parent.name for path in LOCALES.glob("*/LC_MESSAGES/django.po"))


def get_po_path(locale: str) -> Path:
    """Return the path of a locale's `.po` file."""
    return LOCALES / locale / "LC_MESSAGES" / "django.po"


def read_catalog(locale: str) -> Catalog:
    """Read the catalogue of a locale."""
    with get_po_path(locale).open("rb") as file:
        return read_po(file, locale=locale)


def update_catalog(locale: str, template: Catalog) -> None:
    """Add new messages to a catalogue, remove unused ones, and compile it."""
    path = get_po_path(locale)
    if path.exists():
        catalog = read_catalog(locale)
    else:
        catalog = Catalog(
            locale=Locale.parse(locale),
            header_comment=HEADER,
            project="mcp_django",
            version="1",
            last_translator=TRANSLATOR,
            language_team=TRANSLATOR,
            fuzzy=False,
        )
        catalog.msgid_bugs_address = ""
        catalog.creation_date = catalog.revision_date = FIRST_DATE
        path.parent.mkdir(parents=True, exist_ok=True)

    created, revised = catalog.creation_date, catalog.revision_date
    catalog.update(template, no_fuzzy_matching=True)
    catalog.obsolete.clear()
    # Without these dates, a file changes only if its messages do.
    catalog.creation_date, catalog.revision_date = created, revised
    write_catalog(locale, catalog)


def write_catalog(locale: str, catalog: Catalog) -> None:
    """Write a catalogue, and compile it for Django."""
    path = get_po_path(locale)
    with path.open("wb") as file:
        write_po(file, catalog, width=LINE_WIDTH, include_lineno=False, sort_by_file=False)
    with path.with_suffix(".mo").open("wb") as file:
        write_mo(file, catalog)


def find_problems(locale: str, template: Catalog) -> Iterator[str]:
    """Yield the reasons for which a catalogue is not complete and up to date."""
    catalog = read_catalog(locale)
    for message in _list_messages(template):
        entry = catalog.get(message.id, message.context)
        if entry is None:
            yield f"missing: {message.id!r}"
        else:
            yield from _find_entry_problems(catalog, entry)
    for entry in _list_messages(catalog):
        if template.get(entry.id, entry.context) is None:
            yield f"unused: {entry.id!r}"
    for entry in catalog.obsolete.values():
        yield f"obsolete: {entry.id!r}"
    if _read_compiled(locale) != _list_translations(catalog):
        yield "django.mo differs from django.po"


def _find_entry_problems(catalog: Catalog, entry: Message) -> Iterator[str]:
    forms = entry.string if isinstance(entry.string, tuple) else (entry.string,)
    if entry.pluralizable and len(forms) != catalog.num_plurals:
        yield f"number of plural forms: {entry.id!r}"
    if not all(forms):
        yield f"untranslated: {entry.id!r}"
        return
    if entry.fuzzy:
        yield f"fuzzy: {entry.id!r}"
    ids = entry.id if isinstance(entry.id, tuple) else (entry.id,)
    for number, form in enumerate(forms):
        # In languages with a singular, its form may leave out the number.
        models = ids if number == 0 and len(forms) > 1 else ids[-1:]
        if _find_placeholders(form) not in map(_find_placeholders, models):
            yield f"placeholders: {entry.id!r} and {form!r}"


def _find_placeholders(text: str) -> list[str]:
    return sorted(_PLACEHOLDER.findall(text))


def _list_messages(catalog: Catalog) -> list[Message]:
    return [message for message in catalog if message.id]


def _list_translations(catalog: Catalog) -> dict[Any, str]:
    """Return the translations as `gettext` reads them from a compiled catalogue."""
    found: dict[Any, str] = {}
    for message in _list_messages(catalog):
        prefix = "" if message.context is None else f"{message.context}\x04"
        if isinstance(message.id, tuple):
            # Without a translation, Babel compiles the text itself.
            forms = message.string if any(message.string) else message.id
            found |= {(prefix + message.id[0], form): text for form, text in enumerate(forms)}
        else:
            found[prefix + message.id] = message.string
    return {key: text for key, text in found.items() if text}


def _read_compiled(locale: str) -> dict[Any, str]:
    path = get_po_path(locale).with_suffix(".mo")
    if not path.exists():
        return {}
    with path.open("rb") as file:
        compiled: dict[Any, str] = gettext.GNUTranslations(file)._catalog  # type: ignore[attr-defined]
    return {key: text for key, text in compiled.items() if key and text}


def main(arguments: list[str] | None = None) -> int:
    """Update or check the catalogues. Return the status to exit with."""
    parser = argparse.ArgumentParser(description="Extract, update and compile the message catalogues.")
    parser.add_argument("--add", metavar="LOCALE", action="append", default=[], help="start a catalogue, such as pt_BR")
    parser.add_argument("--check", action="store_true", help="report incomplete and outdated catalogues")
    options = parser.parse_args(arguments)
    template = extract_messages()
    if not options.check:
        for locale in sorted({*list_locales(), *options.add}):
            update_catalog(locale, template)

    status = 0
    for locale in list_locales():
        problems = list(find_problems(locale, template))
        total = len(_list_messages(template))
        print(f"{locale}: {total} messages, {len(problems)} problems")
        for problem in problems:
            print(f"    {problem}")
        status |= bool(problems)
    return status if options.check else 0


if __name__ == "__main__":
    sys.exit(main())
