"""Conversations of one owner."""

from collections.abc import Iterable, Mapping
from typing import Any, Literal, NamedTuple

from django.core.exceptions import ValidationError
from django.db.models import Q

from mcp_django.contrib.memory import validation
from mcp_django.contrib.memory.cursors import MemoryCursor
from mcp_django.contrib.memory.models import Conversation
from mcp_django.contrib.memory.options import get_settings
from mcp_django.contrib.memory.quotas import MemoryStore, check_quota, notify_owner

Mode = Literal["replace", "append"]


class SavedConversationRow(NamedTuple):
    """Result of saving a conversation."""

    row: Conversation
    created: bool
    appended: int
    """Number of messages added at the end."""


class MemoryPage(NamedTuple):
    """Page of a list."""

    rows: list[Any]
    total: int
    """Number of all matching rows."""
    next_cursor: str | None


class ConversationStore(MemoryStore):
    """Store of one owner's conversations.

    An id of another owner behaves like an unknown id.
    """

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
    ) -> SavedConversationRow:
        """Save messages under an id, or under a new one.

        "replace" replaces the stored messages. "append" adds messages, without those whose `id` is already present.
        Both are idempotent. Without an id each call creates a conversation. Arguments that are None leave their value
        unchanged. `days` is the lifetime after this and later saves, at most CONVERSATION_DAYS.

        Raises ValidationError for invalid values, MemoryFull at a quota.
        """
        new_messages = validation.clean_messages(messages)
        name = validation.generate_name() if id is None else validation.clean_name(id)

        given: dict[str, Any] = {}
        if title is not None:
            given["title"] = validation.clean_title(title)
        if tags is not None:
            given["tag_list"] = validation.clean_tags(tags)
        if metadata is not None:
            given["metadata"] = validation.clean_metadata(metadata)
        if days is not None:
            given["lifetime"] = validation.clean_lifetime(days)

        with self.lock_for_writing() as owner:
            row = Conversation.objects.filter(owner=owner, name=name).first() or Conversation(owner=owner, name=name)
            created = row.pk is None
            for field, value in given.items():
                setattr(row, field, value)
            appended = _put_messages(row, new_messages, mode)
            if created and not row.title:
                row.title = validation.build_excerpt(row.messages)
            row.size = validation.count_bytes(row.title, row.messages, row.metadata, row.tags)
            _check_size(row)
            check_quota(owner, row, get_settings().conversations_per_owner)
            row.update_index()
            row.renew_now()
            row.save(force_insert=created)
            notify_owner(self.owner, [row.uri])
        return SavedConversationRow(row, created, appended)

    def get(self, id: str) -> Conversation | None:
        """Return the conversation; None if the owner has none with this id."""
        found: Conversation | None = (
            Conversation.objects.for_owner(self.owner).filter(name=id).first() if validation.is_valid_name(id) else None
        )
        return found

    def page(
        self, *, query: str | None = None, tag: str | None = None, size: int = 20, cursor: str | None = None
    ) -> MemoryPage:
        """Return a page of conversations without messages, the last saved first.

        The list can be restricted to a tag, and to words in title and tags. Raises ValidationError for an invalid
        cursor.
        """
        rows = Conversation.objects.for_owner(self.owner).defer("messages", "metadata", "words")
        tag = None if tag is None else (validation.clean_tags([tag]) or [""])[0]
        if tag:
            rows = rows.with_tag(tag)
        if query:
            rows = rows.with_words(query)

        cursors = MemoryCursor(self.owner, "conversations", query, tag)
        entries = rows.page(size, cursors.open_row(cursor))
        next_cursor = cursors.seal_row(entries[size - 1]) if len(entries) > size else None
        return MemoryPage(entries[:size], rows.count(), next_cursor)

    def delete(self, id: str) -> bool:
        """Delete a conversation permanently; False if the owner has none with this id."""
        return self.remove(Conversation, id)

    def suggest(self, value: str, limit: int = 100) -> list[str]:
        """Return ids that complete the beginning of an id or title, the latest first."""
        rows = Conversation.objects.for_owner(self.owner)
        if value:
            begins = Q(name__startswith=value) if validation.is_valid_name(value) else Q(pk=None)
            rows = rows.filter(begins | Q(pk__in=rows.with_words(value).values("pk")))
        return list(rows.order_by("-updated", "-pk").values_list("name", flat=True)[:limit])


def _put_messages(row: Conversation, messages: list[dict[str, Any]], mode: Mode) -> int:
    """Add messages to a conversation; return the number of new messages at its end."""
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
    max_bytes = get_settings().bytes_per_conversation
    if row.size > max_bytes:
        raise ValidationError(
            f"The conversation would have {row.size} bytes, more than the maximum of {max_bytes}. Start another "
            "one, or "
            "save a summary of it."
        )
