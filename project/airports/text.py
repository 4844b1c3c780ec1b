"""Plain letters for comparing names: `Zürich`, `ZURICH` and `zurich` are one word."""

import re
import unicodedata

_LETTERS = str.maketrans(
    {"æ": "ae", "œ": "oe", "ø": "o", "ð": "d", "þ": "th", "ł": "l", "đ": "d", "\N{LATIN SMALL LETTER DOTLESS I}": "i"}
)
_QUOTES = {"Pi", "Pf", "Lm"}
"""Opening, closing and letter-like quotation marks, which names use as apostrophes."""


def fold(text: str) -> str:
    """Return `text` in lower case without accents, its words (letters and digits) separated by single blanks."""
    letters = unicodedata.normalize("NFKD", text.casefold()).translate(_LETTERS)
    plain = "".join(
        letter
        for letter in letters
        if not unicodedata.combining(letter) and letter not in "'`" and unicodedata.category(letter) not in _QUOTES
    )
    return " ".join(re.findall(r"[^\W_]+", plain))
