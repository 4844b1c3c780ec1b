"""Messages to and from the client's model (client/sampling).

They hold one block or several, including tool uses and tool results. The content of a built message is always a list of
blocks. A Revision converts it to its own form.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mcp_django.protocol.content import (
    AudioContent,
    ContentBlock,
    ImageContent,
    PromptMessage,
    TextContent,
    is_content,
)
from mcp_django.protocol.types import Role

Wire = dict[str, Any]


@dataclass(frozen=True, slots=True)
class ToolUseContent:
    """A model's request to use a tool."""

    id: str
    """The model's id for this use; the result repeats it."""
    name: str
    input: Mapping[str, Any]
    """Arguments of the tool."""
    meta: Mapping[str, Any] | None = None

    def to_wire(self) -> Wire:
        """Return the wire object."""
        wire = {"type": "tool_use", "id": self.id, "name": self.name, "input": dict(self.input)}
        return {**wire, "_meta": dict(self.meta)} if self.meta else wire


@dataclass(frozen=True, slots=True)
class ToolResultContent:
    """The result of a model's use of a tool: text, a content block, or a list of both."""

    tool_use_id: str
    content: ContentBlock | str | Sequence[ContentBlock | str] = ()
    structured: Mapping[str, Any] | None = None
    is_error: bool = False
    """True if the tool failed. The model may correct its arguments and retry."""
    meta: Mapping[str, Any] | None = None

    def to_wire(self) -> Wire:
        """Return the wire object."""
        given: Any = [self.content] if isinstance(self.content, str) or is_content(self.content) else self.content
        content = [(TextContent(item) if isinstance(item, str) else item).to_wire() for item in given]
        wire: Wire = {"type": "tool_result", "toolUseId": self.tool_use_id, "content": content}
        if self.structured is not None:
            wire["structuredContent"] = dict(self.structured)
        if self.is_error:
            wire["isError"] = True
        return {**wire, "_meta": dict(self.meta)} if self.meta else wire


SamplingBlock = TextContent | ImageContent | AudioContent | ToolUseContent | ToolResultContent

_FIELDS: dict[str, dict[str, type]] = {
    "text": {"text": str},
    "image": {"data": str, "mimeType": str},
    "audio": {"data": str, "mimeType": str},
    "tool_use": {"id": str, "name": str, "input": dict},
    "tool_result": {"toolUseId": str, "content": list},
}
"""The block types of sampling with their required members."""


@dataclass(frozen=True, slots=True)
class SamplingMessage:
    """A message of a conversation with the client's model: text, a block, or a list.

    Raises:
        ValueError: the role is neither ``user`` nor ``assistant``.
        TypeError: the content has an unsupported type.
    """

    role: Role | str
    content: SamplingBlock | str | Sequence[SamplingBlock | str]
    meta: Mapping[str, Any] | None = None

    def __post_init__(self) -> None:
        if self.role not in (Role.USER, Role.ASSISTANT):
            raise ValueError(f"role {self.role!r} must be 'user' or 'assistant'")
        for item in self._items():
            if not isinstance(item, str | SamplingBlock):
                raise TypeError(
                    f"sampling accepts text, images, audio, tool uses and tool results, not {type(item).__name__}"
                )

    def _items(self) -> Sequence[Any]:
        content = self.content
        return content if isinstance(content, list | tuple) else [content]

    def to_wire(self) -> Wire:
        """Return the wire object, its content a list of blocks."""
        blocks = [TextContent(item) if isinstance(item, str) else item for item in self._items()]
        wire: Wire = {"role": str(self.role), "content": [block.to_wire() for block in blocks]}
        return {**wire, "_meta": dict(self.meta)} if self.meta else wire


SamplingInput = str | PromptMessage | SamplingMessage | Mapping[str, Any]
"""A message: a text of the user, a message object, or a message in wire form."""


def build_messages(sampling_input: SamplingInput | Sequence[SamplingInput]) -> list[Wire]:
    """Build the messages of a conversation, each with a list of blocks as its content.

    Raises:
        ValueError: a message in wire form is invalid, or tool uses and results do not match.
        TypeError: a message or its content has an unsupported type.
    """
    given: Any = (
        [sampling_input]
        if isinstance(sampling_input, str | PromptMessage | SamplingMessage | Mapping)
        else sampling_input
    )
    messages = [_build_message(item) for item in given]
    if not messages:
        raise ValueError("a conversation needs a message")
    check_tool_balance(messages)
    return messages


def _build_message(message: Any) -> Wire:
    if isinstance(message, str):
        return SamplingMessage(Role.USER, message).to_wire()
    if isinstance(message, SamplingMessage):
        return message.to_wire()
    if isinstance(message, PromptMessage):
        return SamplingMessage(message.role, message.content).to_wire()  # type: ignore[arg-type]  # refused by its type
    if not isinstance(message, Mapping):
        raise TypeError(f"a message is text, a SamplingMessage or its wire form, not {type(message).__name__}")
    if message.get("role") not in (Role.USER, Role.ASSISTANT):
        raise ValueError(f"role {message.get('role')!r} must be 'user' or 'assistant'")
    return {**message, "content": blocks_of(message.get("content"))}


def blocks_of(content: Any) -> list[Wire]:
    """Return the blocks of a message's content in wire form, one block or a list.

    Raises:
        ValueError: describes the invalid block.
    """
    blocks = content if type(content) is list else [content]
    for block in blocks:
        fields = _FIELDS.get(str(block.get("type"))) if type(block) is dict else None
        if fields is None:
            raise ValueError("content must be a sampling block, or a list of them")
        for name, kind in fields.items():
            if type(block.get(name)) is not kind:
                raise ValueError(f"a block of type {block['type']} needs {name} of type {kind.__name__}")
    return list(blocks)


def validate_sampling_messages(sampling_input: SamplingInput | Sequence[SamplingInput]) -> None:
    """Check the messages of a conversation for a model.

    Each message must be valid, and tool uses and tool results must match (client/sampling, message content
    constraints). An empty conversation is valid. `Context.sample` performs the same check.

    Raises:
        ValueError: names the invalid message, or the message whose tool uses and results do not match.
        TypeError: a message or its content has an unsupported type.
    """
    if isinstance(sampling_input, str | PromptMessage | SamplingMessage | Mapping) or sampling_input:
        build_messages(sampling_input)


def check_tool_balance(messages: Sequence[Wire]) -> None:
    """Check that tool uses and tool results match.

    After a message of the assistant with tool uses, the next message is the user's. It holds one result for each use
    and nothing else (client/sampling, message content constraints).

    Raises:
        ValueError: names the message, counted from 1, and the rule.
    """
    open_uses: list[str] = []

    for number, message in enumerate(messages, 1):
        used, answered = _ids(message, "tool_use", "id"), _ids(message, "tool_result", "toolUseId")
        if used and message["role"] != Role.ASSISTANT:
            raise ValueError(f"message {number}: only the assistant uses tools")
        if answered and message["role"] != Role.USER:
            raise ValueError(f"message {number}: only the user sends tool results")
        if answered and len(answered) != len(message["content"]):
            raise ValueError(f"message {number}: a message with tool results must hold nothing else")
        if sorted(answered) != sorted(open_uses):
            raise ValueError(f"message {number}: {_describe_imbalance(open_uses, answered)}")
        if len(set(used)) != len(used):
            raise ValueError(f"message {number}: two tool uses have the same id")
        open_uses = used

    if open_uses:
        raise ValueError(f"after message {len(messages)}: {_describe_imbalance(open_uses, [])}")


def _describe_imbalance(used: list[str], answered: list[str]) -> str:
    missing = [id for id in used if id not in answered]
    if missing:
        return f"the tool use {missing[0][:64]!r} must be answered by a tool result in the message right after it"
    return "each tool result must answer one tool use of the message right before it"


def _ids(message: Wire, kind: str, name: str) -> list[str]:
    return [block[name] for block in message["content"] if block["type"] == kind]
