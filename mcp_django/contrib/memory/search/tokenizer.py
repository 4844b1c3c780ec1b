"""Tokenizer: searchable words without case, accents and punctuation.

Databases differ in case-insensitive comparison beyond ASCII, so the words are normalized here.
"""

import re
import unicodedata

MAX_QUERY_WORDS = 16
"""Maximum words of a query; the rest is ignored."""
MAX_WORD_CHARACTERS = 64
"""Maximum characters of a word; PostgreSQL has a limit too (2 KiB, an error)."""
# Scripts without spaces between words: each character is a word (CJK, kana).
_UNSPACED_SCRIPTS = r"\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
_WORD = re.compile(rf"[{_UNSPACED_SCRIPTS}]|[^\W{_UNSPACED_SCRIPTS}]+")


def split_words(text: str) -> list[str]:
    """Return the words of a text, in order."""
    decomposed = unicodedata.normalize("NFKD", text.casefold())
    plain = "".join(character for character in decomposed if not unicodedata.combining(character))
    return [word[:MAX_WORD_CHARACTERS] for word in _WORD.findall(plain.casefold())]


def build_index_text(*texts: str) -> str:
    """Return the searchable column text: each word after a space, for prefix matches."""
    return "".join(f" {word}" for text in texts for word in split_words(text))


def parse_query(query: str) -> list[str]:
    """Return the different words of a query, up to the maximum."""
    return list(dict.fromkeys(split_words(query)))[:MAX_QUERY_WORDS]
