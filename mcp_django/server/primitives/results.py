"""Conversion of return values of handlers to results of the protocol.

Tools may return str, bytes, numbers, lists, dicts, models, content blocks, images or a ToolResult. Resources return
str, bytes, contents or JSON; prompts return str, messages or a PromptResult. Results are built completely; the revision
omits the members it does not define.
"""

import base64
from collections.abc import AsyncIterable, Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from types import NoneType
from typing import Any, Generic, Literal, TypeVar

from mcp_django.protocol import jsonrpc
from mcp_django.protocol.content import (
    BlobResourceContents,
    EmbeddedResource,
    ImageContent,
    PromptMessage,
    TextResourceContents,
    is_content,
)
from mcp_django.protocol.errors import ToolError
from mcp_django.protocol.jsonrpc import JSONMapping, JSONObject
from mcp_django.schema import is_lazy, to_json
from mcp_django.server.primitives.base import Completion, Prompt, Tool

BLOB_MIME_TYPE = "application/octet-stream"
JSON_MIME_TYPE = "application/json"
MAX_COMPLETION_VALUES = 100
"""Maximum number of values in one completion (server/utilities/completion)."""
DEFAULT_MAX_PIECES = 100_000
"""Default maximum number of pieces kept for the result."""

T = TypeVar("T")
Accumulate = Literal["text", "list", "last"] | Callable[[list[Any]], object]


@dataclass(frozen=True, slots=True)
class ToolResult:
    """Complete result of a tool, for results that a plain value cannot express."""

    content: object = ()
    """Text, content blocks, or a list of both."""
    structured: object = None
    """Structured content; checked against the tool's output schema, if any."""
    is_error: bool = False
    """True if the tool failed in a way that the model can correct."""
    meta: JSONMapping = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ResourceResult:
    """Result with several contents, contents with a `_meta`, or contents that clients may cache."""

    contents: Sequence[object]
    meta: JSONMapping = field(default_factory=dict)
    ttl: float = 0.0
    """Seconds for which clients may cache the result (stateless era)."""
    is_public: bool = False
    """True if caches may share the result between callers (stateless era)."""


@dataclass(frozen=True, slots=True)
class PromptResult:
    """Messages of a prompt with a description of their own."""

    messages: object
    description: str | None = None
    meta: JSONMapping = field(default_factory=dict)


class ToolStream(Generic[T]):
    """Result in pieces, with options: an iterable or generator, sync or async.

    A tool that is a generator function itself needs this class only for the options.

    `total` is the number of pieces, if known. `accumulate` builds the result: `"text"` joins the pieces, `"list"` lists
    them, `"last"` takes the last one. A function receives the list. The default follows the output schema of the tool.
    Without a schema, texts are joined and other pieces listed.

    A ToolResult as a piece is the result and ends the stream, like the return value of a sync generator. More than
    `limit` pieces end the call with an error, except with `"last"`, which keeps a single piece.
    """

    __slots__ = ("accumulate", "items", "limit", "total")

    def __init__(
        self,
        items: AsyncIterable[T] | Iterable[T],
        *,
        total: float | None = None,
        accumulate: Accumulate | None = None,
        limit: int = DEFAULT_MAX_PIECES,
    ) -> None:
        """Create a stream.

        Raises ValueError for an unknown `accumulate`, TypeError if `items` is not iterable.
        """
        if not callable(accumulate) and accumulate not in (None, "text", "list", "last"):
            raise ValueError(f"accumulate={accumulate!r} is invalid; use 'text', 'list', 'last' or a function")
        if not isinstance(items, AsyncIterable | Iterable):
            raise TypeError(f"a {type(items).__name__} is not iterable; pass a generator")
        self.items = items
        self.total = total
        self.accumulate = accumulate
        self.limit = limit


class RelayedResult(JSONObject):
    """Wire form of a result that another server built and the proxy has checked.

    It is not built again. The revision omits the members it does not define.
    """


class ExtensionResult(JSONObject):
    """Body of a result with a type of an extension, in place of a tool's or method's own result.

    `ExtensionResult("task", taskId=..., status="working")` is sent with `resultType: "task"`. The handshake era has no
    result types, so the member is left out there.
    """

    def __init__(self, result_type: str, /, **members: object) -> None:
        super().__init__(members)
        self.result_type = result_type


def build_tool_result(tool: Tool, value: object) -> JSONObject:
    """Build a CallToolResult. Raises OutputError if the value does not fit the schema."""
    output = tool.output
    if type(value) is ToolResult:
        return _build_explicit_result(tool, value)
    if type(value) is RelayedResult:
        return value
    if output is None:
        return {"content": to_blocks(value), "isError": False}
    structured = output.to_structured(value)
    text = _text(structured["result"] if output.is_wrapped else structured)
    return {"content": [{"type": "text", "text": text}], "structuredContent": structured, "isError": False}


def _text(value: object) -> str:
    return value if type(value) is str else jsonrpc.dumps(value).decode()


def _build_explicit_result(tool: Tool, result: ToolResult) -> JSONObject:
    body: JSONObject = {"content": to_blocks(result.content), "isError": result.is_error}
    if result.structured is not None or (tool.output is not None and not result.is_error):
        structured = to_json(result.structured) if tool.output is None else tool.output.to_structured(result.structured)
        body["structuredContent"] = structured
        # server/tools: repeat structured content as text for clients that read only text.
        if not body["content"]:
            wrapped = tool.output is not None and tool.output.is_wrapped
            body["content"] = [{"type": "text", "text": _text(structured["result"] if wrapped else structured)}]
    if result.meta:
        body["_meta"] = dict(result.meta)
    return body


def build_tool_error(problem: str | ToolError) -> JSONObject:
    """Build a CallToolResult that describes an error to the model."""
    body: JSONObject = {"content": [{"type": "text", "text": str(problem) or "The tool failed"}], "isError": True}
    if isinstance(problem, ToolError) and problem.meta:
        body["_meta"] = dict(problem.meta)
    return body


def to_blocks(value: object) -> list[JSONObject]:
    """Convert a value to content blocks, a list with content to one block per item."""
    if value is None:
        return []
    if isinstance(value, list | tuple) and (not value or any(_is_block(item) for item in value)):
        return [to_block(item) for item in value]
    return [to_block(value)]


def _is_block(value: object) -> bool:
    return is_content(value) or isinstance(value, bytes) or _find_image(value) is not None


def to_block(value: Any) -> JSONObject:
    """Convert a value to one content block."""
    if isinstance(value, str) or is_lazy(value):
        return {"type": "text", "text": str(value)}
    if is_content(value):
        wire: JSONObject = value.to_wire()
        return wire
    if isinstance(value, bytes | bytearray | memoryview):
        resource = BlobResourceContents(bytes(value), uri="data:application/octet-stream", mime_type=BLOB_MIME_TYPE)
        return EmbeddedResource(resource).to_wire()
    picture = _find_image(value)
    if picture is not None:
        return picture.to_wire()
    return {"type": "text", "text": jsonrpc.dumps(to_json(value)).decode()}


def _find_image(value: Any) -> ImageContent | None:
    """Return the image of an object with IPython's display protocol, else None.

    Examples are images of Pillow and figures of Matplotlib.
    """
    for method, mime_type in (("_repr_png_", "image/png"), ("_repr_jpeg_", "image/jpeg")):
        render = None if isinstance(value, type) else getattr(type(value), method, None)
        data = render(value) if callable(render) else None
        if isinstance(data, bytes):
            return ImageContent(data, mime_type)
        if isinstance(data, str):
            return ImageContent(base64.b64decode(data), mime_type)
    return None


def build_read_result(uri: str, mime_type: str | None, value: object) -> JSONObject:
    """Build a ReadResourceResult; contents without a URI get the requested one."""
    if type(value) is RelayedResult:
        return value
    meta: JSONMapping = {}
    cache: dict[str, Any] = {}
    if isinstance(value, ResourceResult):
        meta, items = value.meta, list(value.contents)
        if value.ttl:
            cache["ttlMs"] = int(value.ttl * 1000)
        if value.is_public:
            cache["cacheScope"] = "public"
    elif isinstance(value, list | tuple) and value and all(map(_is_contents, value)):
        items = list(value)
    else:
        items = [value]

    body: JSONObject = {"contents": [_build_contents(uri, mime_type, item) for item in items], **cache}
    if meta:
        body["_meta"] = dict(meta)
    return body


def _is_contents(value: object) -> bool:
    return isinstance(value, TextResourceContents | BlobResourceContents)


def _build_contents(uri: str, mime_type: str | None, value: Any) -> JSONObject:
    if isinstance(value, str) or is_lazy(value):
        value = TextResourceContents(str(value), mime_type=mime_type or "text/plain")
    elif isinstance(value, bytes | bytearray | memoryview):
        value = BlobResourceContents(bytes(value), mime_type=mime_type or BLOB_MIME_TYPE)
    elif not _is_contents(value):
        value = TextResourceContents(jsonrpc.dumps(to_json(value)).decode(), mime_type=mime_type or JSON_MIME_TYPE)
    wire: JSONObject = value.to_wire()
    wire.setdefault("uri", uri)
    if mime_type is not None:
        wire.setdefault("mimeType", mime_type)
    return wire


def build_prompt_result(prompt: Prompt, value: object) -> JSONObject:
    """Build a GetPromptResult."""
    if type(value) is RelayedResult:
        return value
    description: object = prompt.description
    meta: JSONMapping = {}
    if isinstance(value, PromptResult):
        description, meta, value = value.description or description, value.meta, value.messages
    items = list(value) if isinstance(value, list | tuple) else [value]

    body: JSONObject = {"messages": [_build_message(item) for item in items]}
    if description is not None:
        body["description"] = str(description)
    if meta:
        body["_meta"] = dict(meta)
    return body


def _build_message(value: object) -> JSONObject:
    if isinstance(value, PromptMessage):
        return value.to_wire()
    return {"role": "user", "content": to_block(value)}


def build_completion_result(value: Any) -> JSONObject:
    """Build a CompleteResult. Raises TypeError unless the value is a list of strings.

    Of an iterator, which may be endless, no more values are taken than are sent.
    """
    if value is None:
        value = ()
    if isinstance(value, Iterator):
        taken = list(islice(value, MAX_COMPLETION_VALUES + 1))
        value = Completion(taken[:MAX_COMPLETION_VALUES], has_more=len(taken) > MAX_COMPLETION_VALUES or None)
    if not isinstance(value, Completion):
        value = Completion(value if isinstance(value, str) else list(value))
    completion: Completion = value
    if type(completion.total) not in (int, NoneType) or type(completion.has_more) not in (bool, NoneType):
        raise TypeError("the total of a completion must be an integer, and has_more True or False")
    if isinstance(completion.values, str):
        raise TypeError("a completion must be a list of strings, not one string")

    first: Sequence[Any] = completion.values[: MAX_COMPLETION_VALUES + 1]
    values = [str(item) if is_lazy(item) else item for item in first]
    wrong = next((item for item in values if not isinstance(item, str)), None)
    if wrong is not None:
        raise TypeError(f"a completion must be a list of strings; one item is {type(wrong).__name__}")
    is_truncated = len(values) > MAX_COMPLETION_VALUES or len(completion.values) > MAX_COMPLETION_VALUES
    body: JSONObject = {"values": values[:MAX_COMPLETION_VALUES]}
    total, has_more = completion.total, completion.has_more
    if is_truncated:
        total = len(completion.values) if total is None else total
        has_more = True if has_more is None else has_more
    if total is not None:
        body["total"] = total
    if has_more is not None:
        body["hasMore"] = has_more
    return {"completion": body}
