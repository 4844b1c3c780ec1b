"""A pseudo-locale: a catalogue that accents all marked texts, and a search for text that was not marked.

Every ASCII letter of a translation is replaced by an accented one. A word of ASCII letters on a page is therefore
either data or a text without a mark.
"""

import gettext
import re
from collections.abc import Iterable, Iterator
from html.parser import HTMLParser
from pathlib import Path

import django
from babel.messages import Catalog
from babel.messages.mofile import write_mo
from babel.messages.pofile import read_po
from django.apps import apps

LANGUAGE = "en-xa"
MAX_WORD_CHARS = 30
PLAIN = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
ACCENTED = "ÀßÇÐÉƑĜĤÎĴĶĻṀÑÖÞǪŔŠŢÛṼŴẊÝŽáƀçđéƒğħîĵķļṁñöþǫŕšţûṽŵẋýž"
_ACCENTS = str.maketrans(PLAIN, ACCENTED)
_KEPT = re.compile(r"(%(?:\([^)]*\))?[-+#0-9.]*[a-zA-Z%]|(?<!\$)\{[^{}]*\}|<[^>]*>|&#?\w+;)")
_PLACEHOLDER = re.compile(r"\{\w+\}")
"""Part of a text that a script replaces."""
_WORD = re.compile(r"[A-Za-z]{2,}")
_UNSEEN_ELEMENTS = frozenset({"script", "style", "code", "pre", "template", "textarea"})
_VOID_ELEMENTS = frozenset({"br", "hr", "img", "input", "link", "meta"})
_SEEN_ATTRIBUTES = frozenset({"title", "aria-label", "alt", "placeholder"})


def accent(text: str) -> str:
    """Replace the letters of a text, except in its placeholders and HTML tags."""
    pieces = _KEPT.split(text)
    return "".join(piece if number % 2 else f"[{piece.translate(_ACCENTS)}]" for number, piece in enumerate(pieces))


def write_catalogue(directory: Path, messages: Catalog) -> None:
    """Write the catalogue of the pseudo-locale: our messages, and those of Django and the installed apps."""
    pseudo = Catalog(locale="en", charset="utf-8", fuzzy=False)
    for context, message_id in [*_list_foreign_messages(), *((message.context, message.id) for message in messages)]:
        if message_id:
            text = tuple(map(accent, message_id)) if isinstance(message_id, tuple) else accent(message_id)
            pseudo.add(message_id, text, context=context)

    folder = directory / "en_XA" / "LC_MESSAGES"
    folder.mkdir(parents=True)
    with (folder / "django.mo").open("wb") as file:
        write_mo(file, pseudo)


def _list_foreign_messages() -> Iterator[tuple[str | None, str | tuple[str, str]]]:
    """Yield the messages of other packages: those of their English source, or else of their German catalogue."""
    foreign_apps = (config for config in apps.get_app_configs() if not config.name.startswith("mcp_django"))
    for folder in (Path(django.__file__).parent / "conf", *(Path(config.path) for config in foreign_apps)):
        source = folder / "locale" / "en" / "LC_MESSAGES" / "django.po"
        path = folder / "locale" / "de" / "LC_MESSAGES" / "django.mo"
        if source.exists():
            with source.open("rb") as file:
                yield from ((message.context, message.id) for message in read_po(file) if message.id)
        elif path.exists():
            yield from _read_message_ids(path)


def _read_message_ids(path: Path) -> Iterator[tuple[str | None, str | tuple[str, str]]]:
    with path.open("rb") as file:
        found = gettext.GNUTranslations(file)._catalog  # type: ignore[attr-defined]
    for key in found:
        # A compiled catalogue has the singular of a plural message only. Other plurals than with "s" are not needed.
        text = key[0] if isinstance(key, tuple) else key
        context, separator, message_id = text.rpartition("\x04")
        if isinstance(key, tuple) and key[1] == 0:
            yield (context if separator else None), (message_id, f"{message_id}s")
        elif not isinstance(key, tuple):
            yield (context if separator else None), message_id


class VisibleTextParser(HTMLParser):
    """Collect the texts of a page that a user sees or hears.

    Code, values of text areas, and texts that are marked as English (`lang="en"`) or as untranslatable
    (`translate="no"`) are left out.
    """

    def __init__(self) -> None:
        super().__init__()
        self.texts: list[str] = []
        self._skipped: list[str] = []
        """Open elements, from the first whose text is skipped."""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        attributes = dict(attrs)
        self.texts += [
            _PLACEHOLDER.sub("", value or "") for name, value in attributes.items() if _is_seen(name, value or "")
        ]
        if tag == "input" and attributes.get("type") in ("submit", "button", "reset"):
            self.texts.append(attributes.get("value") or "")
        if tag in _VOID_ELEMENTS:
            return
        is_foreign = attributes.get("translate") == "no" or attributes.get("lang") == "en"
        if self._skipped or is_foreign or tag in _UNSEEN_ELEMENTS:
            self._skipped.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag in self._skipped:
            while self._skipped.pop() != tag:
                pass  # an element without an end tag

    def handle_data(self, data: str) -> None:
        if not self._skipped:
            self.texts.append(data)


def _is_seen(attribute: str, value: str) -> bool:
    """Return True for the attributes that users read. Scripts and styles show some of `data-`: labels and sentences."""
    is_data = attribute.startswith("data-") and not value.startswith("{")
    return attribute in _SEEN_ATTRIBUTES or (is_data and (" " in value or attribute.endswith(("-label", "-text"))))


def find_unmarked_texts(html: str, allowed: Iterable[str]) -> list[str]:
    """Return the visible texts with a word that is neither accented, nor an identifier, nor allowed."""
    parser = VisibleTextParser()
    parser.feed(html)
    parser.close()
    known = frozenset(allowed)
    return sorted({" ".join(text.split()) for text in parser.texts if any(_find_words(text, known))})


def _find_words(text: str, allowed: frozenset[str]) -> Iterator[str]:
    for piece in text.split():
        word = re.sub(r"^\W+|\W+$", "", piece)
        # Identifiers, URLs and dates have digits or punctuation within. Generated identifiers are long.
        if word not in allowed and word.isalpha() and len(word) <= MAX_WORD_CHARS and _WORD.search(word):
            yield word
