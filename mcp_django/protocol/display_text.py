"""Text for display: removal of characters that hide, reorder or imitate other text.

Each text of another party that a person reads passes through this module: messages of elicitation, names of clients,
stored texts, logs. Control characters, characters that change the direction (U+202E, U+2066) and invisible characters
(U+200B, tags, fillers, variation selectors) would show a person another text than the one that the program handles.
"""

import json
import unicodedata
from typing import Final

_JOINERS: Final = frozenset("\u200c\u200d")
_EMOJI_STYLE: Final = "\ufe0f"
_INVISIBLE_LETTERS_AND_MARKS: Final = frozenset(
    chr(code)
    for first, last in (
        (0x034F, 0x034F),
        (0x115F, 0x1160),
        (0x17B4, 0x17B5),
        (0x180B, 0x180F),
        (0x2800, 0x2800),
        (0x3164, 0x3164),
        (0xFE00, 0xFE0F),
        (0xFFA0, 0xFFA0),
        (0xE0100, 0xE01EF),
    )
    for code in range(first, last + 1)
)
"""Characters without a glyph whose category is not "other": fillers and variation selectors."""


def clean_line(text: str, max_characters: int | None = None) -> str:
    """Return a text as one line of visible characters, in which words are separated by one space.

    A longer text is truncated and ends with an ellipsis.
    """
    return truncate(" ".join(_remove_invisible(text).split()), max_characters)


def clean_text(text: str, max_characters: int | None = None) -> str:
    """Return a text of visible characters that keeps its lines and its indentation.

    A longer text is truncated and ends with an ellipsis.
    """
    return truncate(clean_lines(text), max_characters)


def clean_lines(text: str, kept: str = "") -> str:
    """Return a text of visible characters, and those in `kept`, that keeps its lines and its indentation."""
    lines = text.expandtabs(4).splitlines() if "\t" in text else text.splitlines()
    cleaned = "\n".join(_remove_invisible(line, kept) for line in lines)
    return cleaned + "\n" if text.endswith(("\n", "\r")) else cleaned


def truncate(text: str, max_characters: int | None) -> str:
    """Return a text of at most this length; a longer one ends with an ellipsis.

    None is no limit.
    """
    if max_characters is None or len(text) <= max_characters:
        return text
    return text[: max_characters - 1] + "…"


def is_visible(text: str) -> bool:
    """Return True if the text has only visible characters and spaces."""
    return (text.isascii() and text.isprintable()) or _remove_invisible(text) == text


def escape_invisible(text: str, also: str = "") -> str:
    """Return a text for logs: invisible characters, and those in `also`, become backslash escapes."""
    if text.isascii() and text.isprintable() and not set(also) & set(text):
        return text
    return "".join(
        char.encode("unicode_escape").decode("ascii") if char in also or not _is_visible_alone(char) else char
        for char in text
    )


def escape_json(text: str) -> str:
    """Return JSON with the same values, in which invisible characters are escapes: U+202E is `\\u202e`.

    Line breaks between values stay. Outside its strings, JSON has no other character that is escaped.
    """
    if text.isascii() and text.replace("\n", "").isprintable():
        return text
    return "".join(
        char if char == "\n" or _is_visible_alone(char) else json.dumps(char)[1:-1]  # with ASCII only
        for char in text
    )


def _remove_invisible(text: str, kept_characters: str = "") -> str:
    """Return the text without invisible characters; other white space becomes a space."""
    if text.isascii() and text.isprintable():
        return text
    kept: list[str] = []
    for index, char in enumerate(text):
        if (
            char in kept_characters
            or _is_visible_alone(char)
            or _is_part_of_glyph(char, kept[-1:], text[index + 1 : index + 2])
        ):
            kept.append(char)
        elif char.isspace():
            kept.append(" ")
    return "".join(kept)


def _is_visible_alone(char: str) -> bool:
    return char.isprintable() and char not in _INVISIBLE_LETTERS_AND_MARKS


def _is_part_of_glyph(char: str, before: list[str], after: str) -> bool:
    """Return True for a joiner or selector that its neighbours need.

    Joiners belong to the spelling of Persian and of Indic languages (RFC 5892, appendix A), and to emoji.
    """
    if not before or (char not in _JOINERS and char != _EMOJI_STYLE):
        return False
    (previous,) = before
    is_emoji = unicodedata.category(previous) in ("So", "Sk") or previous == _EMOJI_STYLE
    if char == _EMOJI_STYLE:
        return is_emoji and previous != _EMOJI_STYLE
    if is_emoji:
        return after != "" and unicodedata.category(after) == "So"
    # 9 is the canonical combining class of viramas, after which a joiner changes the displayed letter.
    if unicodedata.combining(previous) == 9:
        return True
    return unicodedata.bidirectional(previous) == "AL" and after != "" and unicodedata.bidirectional(after) == "AL"
