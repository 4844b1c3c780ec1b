"""Facts of one owner."""

from collections.abc import Iterable
from typing import Any

from mcp_django.contrib.memory import validation
from mcp_django.contrib.memory.conversations import MemoryPage
from mcp_django.contrib.memory.cursors import MemoryCursor
from mcp_django.contrib.memory.models import Fact
from mcp_django.contrib.memory.options import get_settings
from mcp_django.contrib.memory.quotas import MemoryStore, check_quota, notify_owner
from mcp_django.contrib.memory.search import rank_facts

MAX_TEXT_CHARACTERS = 4000


class FactStore(MemoryStore):
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
        text = validation.clean_text(text, "text", MAX_TEXT_CHARACTERS)
        lookup = {"text": text} if id is None else {"name": validation.clean_name(id)}
        given: dict[str, Any] = {"text": text}
        if category is not None:
            given["category"] = validation.clean_category(category)
        if tags is not None:
            given["tag_list"] = validation.clean_tags(tags)
        if days is not None:
            given["lifetime"] = validation.clean_lifetime(days)

        with self.lock_for_writing() as owner:
            row = Fact.objects.filter(owner=owner, **lookup).first()
            created = row is None
            if row is None:
                row = Fact(owner=owner, name=id or validation.generate_name())
            for field, value in given.items():
                setattr(row, field, value)
            row.size = validation.count_bytes(row.text, row.category, row.tags)
            check_quota(owner, row, get_settings().facts_per_owner)
            row.update_index()
            row.renew_now()
            row.save(force_insert=created)
            notify_owner(self.owner, [Fact.uri])
        return row, created

    def page(
        self, *, category: str | None = None, tag: str | None = None, size: int = 20, cursor: str | None = None
    ) -> MemoryPage:
        """Return a page of facts, the latest first, optionally of a category or tag.

        Raises ValidationError for an invalid cursor.
        """
        rows, filters = self._filtered(category, tag)
        cursors = MemoryCursor(self.owner, "facts", *filters)
        entries = rows.page(size, cursors.open_row(cursor))
        next_cursor = cursors.seal_row(entries[size - 1]) if len(entries) > size else None
        return MemoryPage(entries[:size], rows.count(), next_cursor)

    def search(
        self,
        query: str,
        *,
        category: str | None = None,
        tag: str | None = None,
        size: int = 20,
        cursor: str | None = None,
    ) -> MemoryPage:
        """Return a page of facts that match words of the query, the best first.

        Raises ValidationError for an invalid cursor.
        """

        rows, filters = self._filtered(category, tag)
        cursors = MemoryCursor(self.owner, "search", query, *filters)
        position = cursors.open(cursor)
        start = 0 if position is None else position[0]

        rows = rank_facts(rows, query)
        entries = list(rows[start : start + size + 1])
        next_cursor = cursors.seal(start + size) if len(entries) > size else None
        return MemoryPage(entries[:size], rows.count(), next_cursor)

    def delete(self, id: str) -> bool:
        """Delete a fact permanently; False if the owner has no fact with this id."""
        return self.remove(Fact, id)

    def _filtered(self, category: str | None, tag: str | None) -> tuple[Any, tuple[str, str]]:
        rows = Fact.objects.for_owner(self.owner).defer("words")
        category = validation.clean_category(category or "")
        tag = next(iter(validation.clean_tags([tag or ""])), "")
        if category:
            rows = rows.filter(category=category)
        if tag:
            rows = rows.with_tag(tag)
        return rows, (category, tag)
