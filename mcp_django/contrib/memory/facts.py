"""Facts of one owner."""

from collections.abc import Iterable
from typing import Any

from mcp_django.contrib.memory import validation
from mcp_django.contrib.memory.conversations import Page
from mcp_django.contrib.memory.models import Fact
from mcp_django.contrib.memory.notifications import tell
from mcp_django.contrib.memory.options import get_settings
from mcp_django.contrib.memory.quotas import Keeper, claim
from mcp_django.contrib.memory.search.cursors import Cursor
from mcp_django.contrib.memory.search.search import ranked

TEXT_LENGTH = 4000


class Facts(Keeper):
    """Store of one owner's facts.

    An id of another owner behaves like an unknown id.
    """

    def save(
        self,
        text: str,
        *,
        id: str | None = None,
        category: str | None = None,
        tags: Iterable[str] | None = None,
        days: float | None = None,
    ) -> tuple[Fact, bool]:
        """Save a fact; return the row, and True if it is new.

        With an id it replaces the fact with that id. Without one it updates the fact with the same text, if any, so the
        call is idempotent. Arguments that are None leave their value unchanged. `days` is the lifetime after this and
        later saves, at most FACT_DAYS.

        Raises ValidationError for invalid values, MemoryFull at a quota.
        """
        text = validation.text_of(text, "text", TEXT_LENGTH)
        known = {"text": text} if id is None else {"name": validation.name_of(id)}
        given: dict[str, Any] = {"text": text}
        if category is not None:
            given["category"] = validation.category_of(category)
        if tags is not None:
            given["tag_list"] = validation.tags_of(tags)
        if days is not None:
            given["lifetime"] = validation.lifetime_of(days)

        with self.writing() as owner:
            row = Fact.objects.filter(owner=owner, **known).first()
            created = row is None
            if row is None:
                row = Fact(owner=owner, name=id or validation.new_name())
            for field, value in given.items():
                setattr(row, field, value)
            row.size = validation.size_of(row.text, row.category, row.tags)
            claim(owner, row, get_settings().facts_per_owner)
            row.index()
            row.renew_now()
            row.save(force_insert=created)
            tell(self.owner, [Fact.uri])
        return row, created

    def page(
        self, *, category: str | None = None, tag: str | None = None, size: int = 20, cursor: str | None = None
    ) -> Page:
        """Return a page of facts, the latest first, optionally of a category or tag.

        Raises ValidationError for an invalid cursor.
        """
        rows, filters = self._filtered(category, tag)
        cursors = Cursor(self.owner, "facts", *filters)
        found = rows.page(size, cursors.row(cursor))
        more = cursors.after(found[size - 1]) if len(found) > size else None
        return Page(found[:size], rows.count(), more)

    def search(
        self,
        query: str,
        *,
        category: str | None = None,
        tag: str | None = None,
        size: int = 20,
        cursor: str | None = None,
    ) -> Page:
        """Return a page of facts that match words of the query, the best first.

        Raises ValidationError for an invalid cursor.
        """

        rows, filters = self._filtered(category, tag)
        cursors = Cursor(self.owner, "search", query, *filters)
        position = cursors.open(cursor)
        start = 0 if position is None else position[0]

        rows = ranked(rows, query)
        found = list(rows[start : start + size + 1])
        more = cursors.seal(start + size) if len(found) > size else None
        return Page(found[:size], rows.count(), more)

    def delete(self, id: str) -> bool:
        """Delete a fact permanently; False if the owner has no fact with this id."""
        gone = self.remove(Fact, id)
        if gone:
            tell(self.owner, [Fact.uri])
        return gone

    def _filtered(self, category: str | None, tag: str | None) -> tuple[Any, tuple[str, str]]:
        rows = Fact.objects.of(self.owner).defer("words")
        category = validation.category_of(category or "")
        tag = next(iter(validation.tags_of([tag or ""])), "")
        if category:
            rows = rows.filter(category=category)
        if tag:
            rows = rows.tagged(tag)
        return rows, (category, tag)
