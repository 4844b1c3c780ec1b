"""Full-text search: words without case and accents, and the ranking of facts.

Databases differ in case-insensitive comparison beyond ASCII, so the words are normalized here. Query words match as
prefixes, and a fact matches if it contains any of the words. PostgreSQL ranks with its full-text search, other
databases by the number of matching words.
"""

import re
import unicodedata
from functools import reduce
from operator import or_
from typing import Any

from django.db import connections
from django.db.models import BooleanField, Case, F, FloatField, Func, IntegerField, Q, TextField, Value, When

from mcp_django.contrib.memory.options import get_settings

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


def rank_facts(facts: Any, query: str) -> Any:
    """Return the matching facts of a query set, the best first, then the latest."""
    words = parse_query(query)
    if not words:
        return facts.none()
    if connections[facts.db].vendor == "postgresql":
        matches = _rank_by_full_text(facts, words, get_settings().search_config)
    else:
        matches = _rank_by_words(facts, words)
    return matches.order_by("-score", "-updated", "-pk")


def _rank_by_full_text(facts: Any, words: list[str], configuration: str) -> Any:
    # Not the functions of django.contrib.postgres: importing them requires psycopg, which other databases lack. The
    # vector must equal the index of the migration.
    config = Func(Value(configuration), template="%(expressions)s::regconfig", output_field=TextField())
    vector = Func(config, F("words"), function="to_tsvector", output_field=TextField())
    # Words hold only letters, digits and underscores; quoted, they cannot be operators.
    wanted = Func(config, Value(" | ".join(f"'{word}':*" for word in words)), function="to_tsquery")
    wanted.output_field = TextField()
    matches = Func(vector, wanted, template="(%(expressions)s)", arg_joiner=" @@ ", output_field=BooleanField())
    score = Func(vector, wanted, function="ts_rank", output_field=FloatField())
    return facts.filter(matches).annotate(score=score)


def _rank_by_words(facts: Any, words: list[str]) -> Any:
    tests = [Q(words__contains=f" {word}") for word in words]
    parts: list[Any] = [Case(When(test, then=1), default=0, output_field=IntegerField()) for test in tests]
    return facts.filter(reduce(or_, tests)).annotate(score=sum(parts[1:], parts[0]))
