"""The size of a page and of its sentences: a reader finishes a page, and reads each sentence once."""

import re
from collections.abc import Iterator
from pathlib import Path

from scripts.reference.sources import MARK
from tests.repository.pages import FENCE_OF_ANY_LANGUAGE, ROOT, name_of

MAX_PAGE_LINES = 250
MAX_AVERAGE_SENTENCE_WORDS = 18


def docs() -> list[Path]:
    """List the pages of the site, apart from those of the repository's root."""
    return sorted((ROOT / "docs").rglob("*.md"))


def hand_written_docs() -> list[Path]:
    """List the pages that are not generated from the code."""
    return [page for page in docs() if MARK not in page.read_text("utf-8")]


def whole_sentences(page: str) -> Iterator[str]:
    """Yield the sentences of a page, with their colons and semicolons. Code, tables and headings are left out."""
    text = FENCE_OF_ANY_LANGUAGE.sub("", page)
    text = re.sub(r"(?m)^(?:#|\||<|[ >]*!!!).*$", "", text)
    text = re.sub(r"\]\([^)]*\)", "]", text)
    for block in re.split(r"\n\s*\n|\n\s*(?:[-*]|\d+\.) ", text):
        yield from (part for part in re.split(r"(?<=[.!?])\s+", " ".join(block.split())) if part)


def average_words(page: str) -> float:
    """Return the average length of a page's sentences, in words."""
    lengths = [len(sentence.split()) for sentence in whole_sentences(page)]
    return sum(lengths) / len(lengths) if lengths else 0


def test_a_page_has_at_most_250_lines() -> None:
    long = {name_of(page) for page in docs() if len(page.read_text("utf-8").splitlines()) > MAX_PAGE_LINES}
    assert long == set(), "split these pages"


def test_sentences_of_a_page_have_18_words_on_average() -> None:
    average = {name_of(page): average_words(page.read_text("utf-8")) for page in hand_written_docs()}
    long = {name for name, words in average.items() if words > MAX_AVERAGE_SENTENCE_WORDS}
    assert long == set(), "shorten the sentences of these pages"


def test_colons_do_not_end_a_sentence() -> None:
    page = (
        "# Title\n\nOne two: three; four.\nFive [six](seven-eight.md)!\n\n- nine\n- ten\n\n```\ncode\n```\n| a | b |\n"
    )
    assert list(whole_sentences(page)) == ["One two: three; four.", "Five [six]!", "- nine", "ten"]
    assert average_words("One two three. Four.") == 2
    assert average_words("# Only a title\n") == 0
