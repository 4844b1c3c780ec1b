"""Validation of results of a remote server before they are forwarded.

Other members than those of the protocol are omitted: unknown members, cache hints, server information. A malformed
result fails the call. Contents are copied only if they change.
"""

from collections.abc import Callable
from typing import Any

from mcp_django.protocol import jsonrpc
from mcp_django.protocol.meta import is_reserved
from mcp_django.schema import OutputError
from mcp_django.server.primitives.base import Completion, ToolOutput
from mcp_django.server.primitives.results import Relayed

Wire = dict[str, Any]
Rename = Callable[[str], str] | None
"""Function that converts a URI to its local form; None if URIs stay unchanged."""

CHARACTERS = 32 * 1024 * 1024
"""Maximum characters of all texts and data in one result."""
BLOCKS = 10_000
"""Maximum content blocks, contents or messages of one result."""
META_BYTES = 64 * 1024
"""Maximum bytes of JSON in one `_meta`."""
_BLOCKS: dict[str, dict[str, type]] = {
    "text": {"text": str},
    "image": {"data": str, "mimeType": str},
    "audio": {"data": str, "mimeType": str},
    "resource_link": {"uri": str, "name": str},
    "resource": {"resource": dict},
}
"""Types of content blocks, with their required members."""


class Malformed(ValueError):
    """Malformed result of the remote server. The text quotes no content."""


def tool_result(raw: Wire, output: ToolOutput | None, rename: Rename) -> Relayed:
    """Validate the result of a tool against its schema. Raises MalformedResult."""
    is_error = raw.get("isError", False)
    if type(is_error) is not bool:
        raise Malformed("isError must be true or false")
    body = Relayed(content=_blocks(raw.get("content", []), rename), isError=is_error)

    structured = raw.get("structuredContent")
    if structured is not None:
        if output is not None and not is_error:
            try:
                output.structured(structured)
            except OutputError:
                raise Malformed("the structured content does not fit the tool's output schema") from None
        body["structuredContent"] = structured
    elif output is not None and not is_error:
        raise Malformed("the structured content that the tool's output schema promises is missing")
    return _with_meta(body, raw)


def prompt_result(raw: Wire, rename: Rename) -> Relayed:
    """Validate the messages of a prompt. Raises MalformedResult."""
    given = raw.get("messages")
    if type(given) is not list or len(given) > BLOCKS:
        raise Malformed("messages are not a list, or too many")
    for message in given:
        if type(message) is not dict or message.get("role") not in ("user", "assistant"):
            raise Malformed("a message has no role")

    contents = _blocks([message.get("content") for message in given], rename)
    pairs = zip(given, contents, strict=True)
    body = Relayed(messages=[{"role": message["role"], "content": content} for message, content in pairs])
    if type(raw.get("description")) is str:
        body["description"] = raw["description"]
    return _with_meta(body, raw)


def read_result(raw: Wire, rename: Rename) -> Relayed:
    """Validate the contents of a resource. Raises MalformedResult."""
    given = raw.get("contents")
    if type(given) is not list or len(given) > BLOCKS:
        raise Malformed("contents are not a list, or too many")
    size = 0
    for contents in given:
        size += _contents_size(contents)
        if size > CHARACTERS:
            raise Malformed("the contents are too large")
    return _with_meta(Relayed(contents=[_renamed(item, rename) for item in given]), raw)


def completion(raw: Wire) -> Completion:
    """Validate suggested values. Raises MalformedResult."""
    found = raw.get("completion")
    values = found.get("values") if type(found) is dict else None
    if type(found) is not dict or type(values) is not list or not all(type(value) is str for value in values):
        raise Malformed("the completion has no list of strings")
    total, has_more = found.get("total"), found.get("hasMore")
    return Completion(
        values, total if type(total) is int and total >= 0 else None, has_more if type(has_more) is bool else None
    )


def meta_of(raw: Wire) -> Wire:
    """Return the `_meta` without keys of the protocol; empty if it is too large."""
    meta = raw.get("_meta")
    if type(meta) is not dict or not meta:
        return {}
    kept = {key: value for key, value in meta.items() if not is_reserved(key)}
    return kept if not kept or len(jsonrpc.dumps(kept)) <= META_BYTES else {}


def _with_meta(body: Relayed, raw: Wire) -> Relayed:
    if raw.get("_meta") and (meta := meta_of(raw)):
        body["_meta"] = meta
    return body


def _blocks(given: Any, rename: Rename) -> list[Wire]:
    if type(given) is not list or len(given) > BLOCKS:
        raise Malformed("the content is not a list, or too long")

    size = 0
    for block in given:
        said = block.get("type") if type(block) is dict else None
        fields = _BLOCKS.get(said) if type(said) is str else None
        if fields is None:
            raise Malformed("a content block has an unknown type")
        for name, kind in fields.items():
            value: Any = block.get(name)
            if type(value) is not kind:
                raise Malformed(f"a content block of type {block['type']} has no {name}")
            size += len(str(value)) if kind is str else _contents_size(value)
        if "annotations" in block and type(block["annotations"]) is not dict:
            raise Malformed("annotations are not an object")

    if size > CHARACTERS:
        raise Malformed("the content is too large")
    return given if rename is None else [_renamed_block(block, rename) for block in given]


def _contents_size(contents: Any) -> int:
    if type(contents) is not dict or type(contents.get("uri")) is not str:
        raise Malformed("the contents of a resource have no uri")
    data = contents.get("text", contents.get("blob"))
    if type(data) is not str or ("text" in contents and "blob" in contents):
        raise Malformed("the contents of a resource have neither text nor blob")
    return len(data)


def _renamed(item: Wire, rename: Rename) -> Wire:
    return item if rename is None else {**item, "uri": rename(item["uri"])}


def _renamed_block(block: Wire, rename: Rename) -> Wire:
    if block["type"] == "resource_link":
        return _renamed(block, rename)
    return {**block, "resource": _renamed(block["resource"], rename)} if block["type"] == "resource" else block
