"""Tokenizer: searchable words without case, accents and punctuation.

Databases differ in case-insensitive comparison beyond ASCII, so the words are normalized here.
"""

import re
import unicodedata

MOST_WORDS = 16
"""Maximum words of a query; the rest is ignored."""
LONGEST = 64
"""Maximum characters of a word; PostgreSQL has a limit too (2 KiB, an error)."""
# Scripts without spaces between words: each character is a word (CJK, kana).
_ALONE = r"\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
_WORD = re.compile(rf"[{_ALONE}]|[^\W{_ALONE}]+")


def words_of(text: str) -> list[str]:
    """Return the words of a text, in order."""
    decomposed = unicodedata.normalize("NFKD", text.casefold())
    plain = "".join(character for character in decomposed if not unicodedata.combining(character))
    return [word[:LONGEST] for word in _WORD.findall(plain.casefold())]


def indexed(*texts: str) -> str:
    """Return the searchable column text: each word after a space, for prefix matches."""
    return "".join(f" {word}" for text in texts for word in words_of(text))


def query_words(query: str) -> list[str]:
    """Return the different words of a query, up to the maximum."""
    return list(dict.fromkeys(words_of(query)))[:MOST_WORDS]
