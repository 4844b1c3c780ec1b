"""Tools, resources and completion of the memory.

They are registered when the project starts, on the server in `MCP["MEMORY"]["SERVER"]`. The owner is always the
principal of the call; no argument selects it. The docstrings of tools are descriptions for clients.
"""

from collections.abc import Callable
from typing import Annotated, Any, TypedDict, TypeVar

from pydantic import Field

from mcp_django import Principal, ToolError, completion, resource, tool
from mcp_django.contrib.memory.conversations import ConversationStore, Mode
from mcp_django.contrib.memory.facts import MAX_TEXT_CHARACTERS, FactStore
from mcp_django.contrib.memory.models import MAX_CATEGORY_CHARACTERS, MAX_NAME_CHARACTERS, MAX_TITLE_CHARACTERS, Fact
from mcp_django.contrib.memory.options import MAX_DAYS, get_settings
from mcp_django.contrib.memory.schemas import (
    ConversationEntry,
    ConversationPage,
    Deleted,
    FactPage,
    KeptConversation,
    KeptFact,
    Message,
    SavedConversation,
    SavedFact,
)
from mcp_django.contrib.memory.validation import MAX_TAG_CHARACTERS, MAX_TAGS, NAME_PATTERN

F = TypeVar("F", bound=Callable[..., Any])
Name = Annotated[str, Field(pattern=f"^{NAME_PATTERN}$")]
AnyName = Annotated[str, Field(max_length=MAX_NAME_CHARACTERS)]
Tag = Annotated[str, Field(max_length=MAX_TAG_CHARACTERS)]
Tags = Annotated[list[Tag], Field(max_length=MAX_TAGS)]
Category = Annotated[str, Field(max_length=MAX_CATEGORY_CHARACTERS)]
Query = Annotated[str, Field(min_length=1, max_length=200)]
Days = Annotated[float, Field(gt=0, le=MAX_DAYS)]
PageSize = Annotated[int, Field(ge=1, le=100)]
Cursor = Annotated[str, Field(max_length=1000)]
MAX_FACTS_SHOWN = 200
"""Maximum facts in the resource, the latest ones."""
TEMPLATE = "memory://conversations/{id}"
_options = get_settings()


async def has_owner(principal: Principal) -> bool:
    """Return True if the caller has an owner key, and so a memory."""
    return principal.owner is not None


class _AccessOptions(TypedDict):
    server: str
    permission: Any
    scopes: tuple[str, ...]


def _build_access_options(*permissions: str, write: bool = False) -> _AccessOptions:
    """Return the access options: an owner key, permissions and scopes of the settings."""
    names = [f"mcp_memory.{name}" for name in permissions] if _options.permissions else []
    scopes = _options.write_scopes if write else _options.read_scopes
    return {"server": _options.server, "permission": (*names, has_owner), "scopes": scopes}


READ_ANNOTATIONS = {"readOnlyHint": True, "openWorldHint": False}
SAVE_ANNOTATIONS = {"readOnlyHint": False, "openWorldHint": False}
DELETE_ANNOTATIONS = {"readOnlyHint": False, "destructiveHint": True, "idempotentHint": True, "openWorldHint": False}


@tool(
    title="Save a conversation",
    annotations={**SAVE_ANNOTATIONS, "destructiveHint": True},
    **_build_access_options("add_conversation", "change_conversation", write=True),
)
def save_conversation(
    messages: list[Message],
    *,
    principal: Principal,
    id: Name | None = None,
    mode: Mode = "replace",
    title: Annotated[str, Field(max_length=MAX_TITLE_CHARACTERS)] | None = None,
    tags: Tags | None = None,
    metadata: dict[str, Any] | None = None,
    expires_in_days: Days | None = None,
) -> SavedConversation:
    """Save a conversation of the user you are talking to, to go on with it another time.

    Args:
        messages: The messages, in order.
        id: The conversation's id. Left out, it is a new conversation, and the answer names its id.
        mode: "replace" puts the messages in the place of those that are there; "append" puts them behind, without those
            whose own id is there already.
        title: Subject of the conversation. Left out, it stays as it was; a new one is named after its first message.
        tags: Words to find it by. Left out, they stay as they were.
        metadata: Further data of the conversation. Left out, it stays as it was.
        expires_in_days: Days after this and any later save after which it is deleted.
    """
    said = map(Message.to_dict, messages)
    row, created, added = ConversationStore.for_principal(principal).save(
        said, id=id, mode=mode, title=title, tags=tags, metadata=metadata, days=expires_in_days
    )
    return SavedConversation(row.name, row.title, created, row.message_count, added, row.expires)


@tool(title="Get a conversation", annotations=READ_ANNOTATIONS, **_build_access_options("view_conversation"))
def get_conversation(
    id: AnyName,
    *,
    principal: Principal,
    last: Annotated[int, Field(ge=1, le=1000)] = 100,
    skip: Annotated[int, Field(ge=0)] = 0,
) -> KeptConversation:
    """Get a conversation that was saved: its last messages, or earlier ones with `skip`.

    Args:
        id: The conversation's id.
        last: Maximum number of messages, from the end.
        skip: Number of messages to leave out at the end: those that you have already got.
    """
    row = ConversationStore.for_principal(principal).get(id)
    if row is None:
        raise ToolError("Unknown conversation. Call list_conversations to see the saved ones.")
    return KeptConversation.from_row(row, last=last, skip=skip)


@tool(title="List conversations", annotations=READ_ANNOTATIONS, **_build_access_options("view_conversation"))
def list_conversations(
    *,
    principal: Principal,
    query: Query | None = None,
    tag: Tag | None = None,
    limit: PageSize = 20,
    cursor: Cursor | None = None,
) -> ConversationPage:
    """List the user's saved conversations, the latest first, without their messages.

    Args:
        query: Words, or beginnings of words, that the title or the tags must have.
        tag: A tag that they must have.
        limit: Maximum number of entries.
        cursor: The next_cursor of the page before.
    """
    rows, total, more = ConversationStore.for_principal(principal).page(query=query, tag=tag, size=limit, cursor=cursor)
    return ConversationPage([ConversationEntry.from_row(row) for row in rows], total, more)


@tool(
    title="Delete a conversation",
    annotations=DELETE_ANNOTATIONS,
    **_build_access_options("delete_conversation", write=True),
)
def delete_conversation(id: AnyName, principal: Principal) -> Deleted:
    """Delete a saved conversation for good.

    Args:
        id: The conversation's id.
    """
    return Deleted(ConversationStore.for_principal(principal).delete(id))


@tool(
    title="Remember a fact",
    annotations={**SAVE_ANNOTATIONS, "destructiveHint": True, "idempotentHint": True},
    **_build_access_options("add_fact", "change_fact", write=True),
)
def save_user_fact(
    text: Annotated[str, Field(min_length=1, max_length=MAX_TEXT_CHARACTERS)],
    *,
    principal: Principal,
    id: Name | None = None,
    category: Category | None = None,
    tags: Tags | None = None,
    expires_in_days: Days | None = None,
) -> SavedFact:
    """Remember a fact about the user you are talking to, such as a preference. The same text again changes nothing.

    Args:
        text: The fact, as a sentence that can be understood alone.
        id: The id of a fact that it takes the place of, or the one that a new fact is to have. Left out, the answer
            names it.
        category: Sort of the fact, such as "preferences". Left out, it stays as it was.
        tags: Words to find it by. Left out, they stay as they were.
        expires_in_days: Days after this and any later save after which it is forgotten.
    """
    row, created = FactStore.for_principal(principal).save(
        text, id=id, category=category, tags=tags, days=expires_in_days
    )
    return SavedFact(KeptFact.from_row(row), created)


@tool(title="Get facts", annotations=READ_ANNOTATIONS, **_build_access_options("view_fact"))
def get_user_facts(
    *,
    principal: Principal,
    category: Category | None = None,
    tag: Tag | None = None,
    limit: PageSize = 50,
    cursor: Cursor | None = None,
) -> FactPage:
    """Get the facts about the user you are talking to, the latest first.

    Args:
        category: The category that the facts must have.
        tag: A tag that they must have.
        limit: Maximum number of entries.
        cursor: The next_cursor of the page before.
    """
    rows, total, more = FactStore.for_principal(principal).page(category=category, tag=tag, size=limit, cursor=cursor)
    return FactPage([KeptFact.from_row(row) for row in rows], total, more)


@tool(title="Search facts", annotations=READ_ANNOTATIONS, **_build_access_options("view_fact"))
def search_user_facts(
    query: Query,
    *,
    principal: Principal,
    category: Category | None = None,
    tag: Tag | None = None,
    limit: PageSize = 10,
    cursor: Cursor | None = None,
) -> FactPage:
    """Search the facts about the user you are talking to that have any of the words, the best first.

    Args:
        query: Words, or beginnings of words.
        category: The category that the facts must have.
        tag: A tag that they must have.
        limit: Maximum number of entries.
        cursor: The next_cursor of the page before.
    """
    rows, total, more = FactStore.for_principal(principal).search(
        query, category=category, tag=tag, size=limit, cursor=cursor
    )
    return FactPage([KeptFact.from_row(row) for row in rows], total, more)


@tool(title="Forget a fact", annotations=DELETE_ANNOTATIONS, **_build_access_options("delete_fact", write=True))
def delete_user_fact(id: AnyName, principal: Principal) -> Deleted:
    """Forget a fact for good.

    Args:
        id: The fact's id.
    """
    return Deleted(FactStore.for_principal(principal).delete(id))


@resource(TEMPLATE, name="conversation", mime_type="application/json", **_build_access_options("view_conversation"))
def conversation(id: str, principal: Principal) -> KeptConversation | None:
    """A saved conversation of the user's, with all its messages."""
    row = None if principal.owner is None else ConversationStore.for_principal(principal).get(id)
    return None if row is None else KeptConversation.from_row(row)


@resource(Fact.uri, name="facts", mime_type="application/json", **_build_access_options("view_fact"))
def facts(principal: Principal) -> FactPage | None:
    """What is remembered of the user, the latest first."""
    if principal.owner is None:
        return None
    rows, total, _ = FactStore.for_principal(principal).page(size=MAX_FACTS_SHOWN)
    return FactPage([KeptFact.from_row(row) for row in rows], total, None)


@completion(TEMPLATE, "id", server=_options.server)
def conversation_id(value: str, principal: Principal) -> list[str]:
    """Return ids of conversations whose title or id starts with the typed text."""
    return [] if principal.owner is None else ConversationStore.for_principal(principal).suggest(value)
