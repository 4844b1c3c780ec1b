"""What comes back from questions: the values that `ctx.elicit`, `ctx.sample` and `ctx.list_roots` return."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from ..protocol.content import PromptMessage, TextContent
from ..protocol.revisions import Revision
from .ask import InvalidAnswer, Question

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Answer(Generic[T]):
    """What the user said: truthy when accepted, with the cleaned and typed value in `data`."""

    action: str
    """`accept`, `decline` or `cancel`."""
    data: T | None = None
    form: Any = None
    """The bound and valid Django form, where one was asked with; that of a ModelForm can `save()`."""

    def __bool__(self) -> bool:
        return self.action == "accept"


@dataclass(frozen=True, slots=True)
class Sample:
    """What the client's model said."""

    content: list[dict[str, Any]]
    """The content blocks, as they came."""
    model: str
    stop_reason: str | None = None

    @property
    def text(self) -> str:
        """All text blocks, joined."""
        return "".join(block["text"] for block in self.content if block.get("type") == "text")

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True, slots=True)
class Root:
    """A place that the client works in. Advice, not access control (client/roots)."""

    uri: str
    name: str | None = None


def sample_question(
    revision: Revision,
    messages: str | PromptMessage | Sequence[str | PromptMessage],
    options: Mapping[str, Any],
    key: str | None,
) -> Question:
    """Ask the client's model (client/sampling). `options` are named as on the wire; those of None are left out."""
    given = [messages] if isinstance(messages, str | PromptMessage) else list(messages)
    said = [PromptMessage("user", TextContent(m)) if isinstance(m, str) else m for m in given]
    params: dict[str, Any] = {"messages": [_shaped(revision, m) for m in said]}
    params |= {name: value for name, value in options.items() if value is not None}

    def read(raw: Any) -> Sample:
        content = raw.get("content") if type(raw) is dict else None
        blocks = content if type(content) is list else [content]
        if not all(type(block) is dict and type(block.get("text", "")) is str for block in blocks):
            raise InvalidAnswer("content must be a content block or a list of them")
        return Sample(
            [block for block in blocks if type(block) is dict], str(raw.get("model", "")), raw.get("stopReason")
        )

    return Question("sampling/createMessage", params, {"sampling": {}}, read, key)


def _shaped(revision: Revision, message: PromptMessage) -> dict[str, Any]:
    wire = message.to_wire()
    return {**wire, "content": revision.shape_content(wire["content"])}


def roots_question(key: str | None) -> Question:
    """Ask where the client works (client/roots)."""

    def read(raw: Any) -> list[Root]:
        roots = raw.get("roots") if type(raw) is dict else None
        if type(roots) is not list or not all(type(root) is dict and type(root.get("uri")) is str for root in roots):
            raise InvalidAnswer("roots must be a list of objects with a uri")
        return [Root(root["uri"], root.get("name")) for root in roots]

    return Question("roots/list", None, {"roots": {}}, read, key)
