"""The conversations of one owner."""

from collections.abc import Iterable, Mapping
from typing import Any, Literal, NamedTuple

from django.core.exceptions import ValidationError
from django.db.models import Q

from mcp_django.contrib.memory import validation
from mcp_django.contrib.memory.models import Conversation
from mcp_django.contrib.memory.notifications import tell
from mcp_django.contrib.memory.options import get_settings
from mcp_django.contrib.memory.quotas import Keeper, claim
from mcp_django.contrib.memory.search.cursors import Cursor

Mode = Literal["replace", "append"]


class Saved(NamedTuple):
    """What became of a conversation."""

    row: Conversation
    created: bool
    appended: int
    """How many messages are new at its end."""


class Page(NamedTuple):
    """A part of a list."""

    rows: list[Any]
    total: int
    """How many there are in all."""
    next_cursor: str | None


class Conversations(Keeper):
    """Saves, finds and deletes conversations. An id that somebody else has is no different from one that nobody has."""

    def save(
        self,
        messages: Iterable[Mapping[str, Any]],
        *,
        id: str | None = None,
        mode: Mode = "replace",
        title: str | None = None,
        tags: Iterable[str] | None = None,
        metadata: dict[str, Any] | None = None,
        days: float | None = None,
    ) -> Saved:
        """Keep messages under an id, or under a new one.

        "replace" puts them in the place of those that are there, "append" behind them, without those whose `id` is
        there already: so both may be repeated. Without an id it is a new conversation each time. What is None stays as
        it was. `days` says how long after this and any later save it is kept, at most CONVERSATION_DAYS.

        Raises ValidationError for what cannot be kept, MemoryFull at a quota.
        """
        said = validation.messages_of(messages)
        name = validation.new_name() if id is None else validation.name_of(id)
        given: dict[str, Any] = {}
        if title is not None:
            given["title"] = validation.title_of(title)
        if tags is not None:
            given["tag_list"] = validation.tags_of(tags)
        if metadata is not None:
            given["metadata"] = validation.metadata_of(metadata)
        if days is not None:
            given["lifetime"] = validation.lifetime_of(days)
        with self.writing() as owner:
            row = Conversation.objects.filter(owner=owner, name=name).first() or Conversation(owner=owner, name=name)
            created = row.pk is None
            for field, value in given.items():
                setattr(row, field, value)
            appended = _put(row, said, mode)
            if created and not row.title:
                row.title = validation.excerpt_of(row.messages)
            row.size = validation.size_of(row.title, row.messages, row.metadata, row.tags)
            _check_size(row)
            claim(owner, row, get_settings().conversations_per_owner)
            row.index()
            row.renew_now()
            row.save(force_insert=created)
            tell(self.owner, [row.uri])
        return Saved(row, created, appended)

    def get(self, id: str) -> Conversation | None:
        """The conversation; None when the owner has none of that id."""
        found: Conversation | None = (
            Conversation.objects.of(self.owner).filter(name=id).first() if validation.is_name(id) else None
        )
        return found

    def page(
        self, *, query: str | None = None, tag: str | None = None, size: int = 20, cursor: str | None = None
    ) -> Page:
        """The conversations, those first in which something was saved last, without their messages; those whose title
        and tags have the words of a query, or with a tag. Raises ValidationError for a wrong cursor.
        """
        rows = Conversation.objects.of(self.owner).defer("messages", "metadata", "words")
        tag = None if tag is None else (validation.tags_of([tag]) or [""])[0]
        if tag:
            rows = rows.tagged(tag)
        if query:
            rows = rows.with_words(query)
        cursors = Cursor(self.owner, "conversations", query, tag)
        found = rows.page(size, cursors.row(cursor))
        more = cursors.after(found[size - 1]) if len(found) > size else None
        return Page(found[:size], rows.count(), more)

    def delete(self, id: str) -> bool:
        """Delete it for good. False when the owner had none of that id."""
        gone = self.remove(Conversation, id)
        if gone:
            tell(self.owner, [Conversation(name=id).uri])
        return gone

    def suggest(self, value: str, most: int = 100) -> list[str]:
        """Ids for what somebody has typed of an id or of a title, the latest first."""
        rows = Conversation.objects.of(self.owner)
        if value:
            begins = Q(name__startswith=value) if validation.is_name(value) else Q(pk=None)
            rows = rows.filter(begins | Q(pk__in=rows.with_words(value).values("pk")))
        return list(rows.order_by("-updated", "-pk").values_list("name", flat=True)[:most])


def _put(row: Conversation, messages: list[dict[str, Any]], mode: Mode) -> int:
    """Put messages into a conversation. Returns how many are new at its end."""
    if mode == "replace":
        row.messages = messages
        return len(messages)
    known = {message["id"] for message in row.messages if "id" in message}
    new: list[dict[str, Any]] = []
    for message in messages:
        if "id" not in message:
            new.append(message)
        elif message["id"] not in known:
            known.add(message["id"])
            new.append(message)
    row.messages = [*row.messages, *new]
    return len(new)


def _check_size(row: Conversation) -> None:
    most = get_settings().bytes_per_conversation
    if row.size > most:
        raise ValidationError(
            f"A conversation may have {most} bytes, and this one would have {row.size}. Begin another one, or keep a "
            "summary of it."
        )
