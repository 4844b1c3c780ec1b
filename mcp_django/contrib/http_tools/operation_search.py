"""Search for operations by words.

A word of the query matches a word of an operation if one begins with the other. A word in the name counts most, then
one in the path or the tags, then the action of the HTTP method, the title, and the description. Operations that match
more words of the query come first, then those with more points. Each other word in the name costs a point.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from mcp_django.extensions.calls import truncate
from mcp_django.extensions.primitives import Tool, ToolOutput

MAX_SUMMARY_CHARACTERS = 160
MIN_STEM_CHARACTERS = 3
"""Minimum letters of a word that another word may continue."""
_STOP_WORDS = frozenset(
    {"a", "an", "the", "of", "in", "on", "to", "for", "from", "and", "or", "by", "with", "me", "my"}
)
"""Words of a query that are ignored."""
_WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|[0-9]+|[^\W\d_A-Za-z]+")
_ACTIONS = {
    "get": "get list read show find fetch",
    "post": "create add post new send",
    "put": "update replace change edit set",
    "patch": "update change edit modify",
    "delete": "delete remove destroy",
}
"""Words for the HTTP methods."""


@dataclass(frozen=True, eq=False)
class CatalogEntry:
    """An operation in the catalog of generic tools."""

    tool: Tool
    """Tool of the operation, which is not listed."""
    method: str
    path: str
    """Path, or "" if it is unknown."""
    get_output: Callable[[], ToolOutput | None] | None = None
    """Function that builds the output of the tool, if the tool itself has none."""

    @property
    def is_reading(self) -> bool:
        """Return True if the operation is annotated as read-only."""
        return self.tool.annotations is not None and self.tool.annotations.read_only is True

    @property
    def summary(self) -> str:
        """Title, or the beginning of the description."""
        text = str(self.tool.title or self.tool.description or "").strip().partition("\n")[0]
        return truncate(text, MAX_SUMMARY_CHARACTERS)

    @cached_property
    def points(self) -> Mapping[str, int]:
        """Points by word."""
        tool, points = self.tool, dict[str, int]()
        for text, weight in (
            (str(tool.description or ""), 1),
            (str(tool.title or ""), 2),
            (_ACTIONS.get(self.method.lower(), ""), 2),
            (f"{self.path} {' '.join(tool.tags)}", 3),
            (tool.name, 4),
        ):
            points.update(dict.fromkeys(split_words(text), weight))
        return points


def split_words(text: str) -> list[str]:
    """Split a text into lower-case words; `getPetById` has four."""
    return list(dict.fromkeys(word.lower() for word in _WORD.findall(text)))


def search_operations(entries: Iterable[CatalogEntry], query: str) -> list[CatalogEntry]:
    """Return the matching operations, the best first; all by name for a query without words."""
    words = [word for word in split_words(query) if word not in _STOP_WORDS]
    if not words:
        return sorted(entries, key=lambda entry: entry.tool.name)
    ranked = [(_rank(entry, words), entry) for entry in entries]
    return [entry for rank, entry in sorted(ranked, key=lambda pair: pair[0]) if rank[0] < 0]


def _rank(entry: CatalogEntry, words: Sequence[str]) -> tuple[int, int, int, str]:
    """Return the key of the order: negative matches and points, so that the best is first."""
    points = [_count_points(entry.points, word) for word in words]
    others = sum(not any(_is_related(word, part) for word in words) for part in split_words(entry.tool.name))
    return -sum(map(bool, points)), others - sum(points), len(entry.tool.name), entry.tool.name


def _count_points(points: Mapping[str, int], word: str) -> int:
    """Return the points of a query's word: double for the same word."""
    if word in points:
        return points[word] * 2
    return max((count for known, count in points.items() if _is_related(word, known)), default=0)


def _is_related(word: str, known: str) -> bool:
    """Return True for equal words, and for words of which one begins with the other."""
    if word == known:
        return True
    shorter, longer = sorted((word, known), key=len)
    return len(shorter) >= MIN_STEM_CHARACTERS and longer.startswith(shorter)
