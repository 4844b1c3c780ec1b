"""Text as words to be found by: without case, accents and punctuation, in the same form wherever it is stored.

The databases differ in what "case-insensitive" means beyond ASCII, so nobody asks them.
"""

import re
import unicodedata

MOST_WORDS = 16
"""Words of a query that are looked for; the rest is ignored."""
LONGEST = 64
"""Characters of a word that count. PostgreSQL has a limit too (2 KiB), which is an error there."""
# Scripts without spaces between words: each character stands for itself (CJK, kana).
_ALONE = r"\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
_WORD = re.compile(rf"[{_ALONE}]|[^\W{_ALONE}]+")


def words_of(text: str) -> list[str]:
    """The words of a text, in order."""
    decomposed = unicodedata.normalize("NFKD", text.casefold())
    plain = "".join(character for character in decomposed if not unicodedata.combining(character))
    return [word[:LONGEST] for word in _WORD.findall(plain.casefold())]


def indexed(*texts: str) -> str:
    """What a column keeps of texts to be found by words: each after a space, so that " wor" finds what begins so."""
    return "".join(f" {word}" for text in texts for word in words_of(text))


def query_words(query: str) -> list[str]:
    """The different words of a query, as far as they are looked for."""
    return list(dict.fromkeys(words_of(query)))[:MOST_WORDS]
