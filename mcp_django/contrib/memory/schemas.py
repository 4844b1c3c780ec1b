"""What the tools take and give, as clients see it."""

from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any, Literal

from mcp_django.contrib.memory.models import Conversation, Fact


@dataclass(frozen=True, slots=True)
class Message:
    """One message of a conversation."""

    role: Literal["user", "assistant", "system", "tool"]
    content: str | list[dict[str, Any]]
    """A text, or content blocks as the client has them."""
    id: str | None = None
    """Its name in the conversation: what is appended twice under one id is kept once."""
    name: str | None = None
    """Who said it, if the role does not say enough."""
    time: str | None = None
    """When it was said."""

    @classmethod
    def dict_of(cls, message: "Message") -> dict[str, Any]:
        """The mapping that is kept of it."""
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
    def of(cls, row: Conversation) -> "ConversationEntry":
        """That of a row."""
        return cls(row.name, row.title, row.tag_list, row.message_count, row.created, row.updated, row.expires)


@dataclass(frozen=True, slots=True)
class ConversationPage:
    """A part of the list of conversations."""

    conversations: list[ConversationEntry]
    total: int
    """How many there are in all."""
    next_cursor: str | None
    """Where the list goes on; null at its end."""


@dataclass(frozen=True, slots=True)
class KeptConversation:
    """A conversation."""

    id: str
    title: str
    tags: list[str]
    metadata: dict[str, Any]
    message_count: int
    messages: list[Message]
    """In order. The last ones, if these are not all."""
    earlier: int
    """How many come before these."""
    created: datetime
    updated: datetime
    expires: datetime | None

    @classmethod
    def of(cls, row: Conversation, *, last: int | None = None, skip: int = 0) -> "KeptConversation":
        """That of a row; `last` messages only of those before the `skip` last ones."""
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
    """Is it a new one?"""
    message_count: int
    added: int
    """How many messages of it this call has added or replaced."""
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
    def of(cls, row: Fact) -> "KeptFact":
        """That of a row."""
        return cls(row.name, row.text, row.category, row.tag_list, row.created, row.updated, row.expires)


@dataclass(frozen=True, slots=True)
class SavedFact:
    """What was kept."""

    fact: KeptFact
    created: bool
    """Is it a new one?"""


@dataclass(frozen=True, slots=True)
class FactPage:
    """A part of the facts."""

    facts: list[KeptFact]
    total: int
    """How many there are in all."""
    next_cursor: str | None
    """Where they go on; null at the end."""


@dataclass(frozen=True, slots=True)
class Deleted:
    """What was deleted."""

    deleted: bool
    """False when there was nothing of that id."""
