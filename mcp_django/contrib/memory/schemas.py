"""Arguments and results of the tools, as clients see them.

The docstrings of the classes are descriptions for clients.
"""

from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any, Literal

from mcp_django.contrib.memory.models import Conversation, Fact


@dataclass(frozen=True, slots=True)
class Message:
    """One message of a conversation."""

    role: Literal["user", "assistant", "system", "tool"]
    content: str | list[dict[str, Any]]
    """Text, or content blocks in the form of the client."""
    id: str | None = None
    """Id in the conversation; messages appended twice with the same id are kept once."""
    name: str | None = None
    """Name of the author, if the role is not specific enough."""
    time: str | None = None
    """Time of the message."""

    @classmethod
    def to_dict(cls, message: "Message") -> dict[str, Any]:
        """Return the mapping to store."""
        return asdict(message)


@dataclass(frozen=True, slots=True)
class ConversationEntry:
    """A conversation in a list."""

    id: str
    title: str
    tags: list[str]
    message_count: int
    created: datetime
    updated: datetime
    expires: datetime | None

    @classmethod
    def from_row(cls, row: Conversation) -> "ConversationEntry":
        """Build the entry of a row."""
        return cls(row.name, row.title, row.tag_list, row.message_count, row.created, row.updated, row.expires)


@dataclass(frozen=True, slots=True)
class ConversationPage:
    """A part of the list of conversations."""

    conversations: list[ConversationEntry]
    total: int
    """Number of all conversations."""
    next_cursor: str | None
    """Cursor of the next page; null on the last one."""


@dataclass(frozen=True, slots=True)
class KeptConversation:
    """A conversation."""

    id: str
    title: str
    tags: list[str]
    metadata: dict[str, Any]
    message_count: int
    messages: list[Message]
    """Messages in order; the last ones, if these are not all."""
    earlier: int
    """Number of earlier messages."""
    created: datetime
    updated: datetime
    expires: datetime | None

    @classmethod
    def from_row(cls, row: Conversation, *, last: int | None = None, skip: int = 0) -> "KeptConversation":
        """Build the result of a row, with `last` messages before the `skip` last ones."""
        end = max(len(row.messages) - skip, 0)
        start = 0 if last is None else max(end - last, 0)
        return cls(
            id=row.name,
            title=row.title,
            tags=row.tag_list,
            metadata=row.metadata,
            message_count=row.message_count,
            messages=[Message(**message) for message in row.messages[start:end]],
            earlier=start,
            created=row.created,
            updated=row.updated,
            expires=row.expires,
        )


@dataclass(frozen=True, slots=True)
class SavedConversation:
    """What was kept."""

    id: str
    title: str
    created: bool
    """True for a new conversation."""
    message_count: int
    added: int
    """Number of messages added or replaced by this call."""
    expires: datetime | None


@dataclass(frozen=True, slots=True)
class KeptFact:
    """A fact."""

    id: str
    text: str
    category: str
    tags: list[str]
    created: datetime
    updated: datetime
    expires: datetime | None

    @classmethod
    def from_row(cls, row: Fact) -> "KeptFact":
        """Build the result of a row."""
        return cls(row.name, row.text, row.category, row.tag_list, row.created, row.updated, row.expires)


@dataclass(frozen=True, slots=True)
class SavedFact:
    """What was kept."""

    fact: KeptFact
    created: bool
    """True for a new fact."""


@dataclass(frozen=True, slots=True)
class FactPage:
    """A part of the facts."""

    facts: list[KeptFact]
    total: int
    """Number of all facts."""
    next_cursor: str | None
    """Cursor of the next page; null on the last one."""


@dataclass(frozen=True, slots=True)
class Deleted:
    """What was deleted."""

    deleted: bool
    """False if no entry with this id exists."""
