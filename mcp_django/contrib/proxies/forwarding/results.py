"""Validation of results of a remote server before they are forwarded.

Other members than those of the protocol are omitted: unknown members, cache hints, server information. So are keys of
`_meta` that mean something to this project's clients and pages, except for those of the remote server's own pages. A
malformed result fails the call. Contents are copied only if they change.
"""

import re
from collections.abc import Mapping
from typing import Any

from mcp_django.contrib.proxies.forwarding.uris import has_valid_source
from mcp_django.extensions.calls import jsonrpc
from mcp_django.extensions.errors import OutputError
from mcp_django.extensions.primitives import Completion, RelayedResult, ToolOutput
from mcp_django.protocol.meta import (
    ERRORS_KEY,
    ORIGIN_KEY,
    QUESTION_KEY,
    is_own,
    is_reserved,
    remove_own_keys,
    remove_own_keys_of_block,
)

Wire = dict[str, Any]

MAX_RESULT_CHARACTERS = 32 * 1024 * 1024
"""Maximum characters of all texts and data in one result."""
MAX_BLOCKS = 10_000
"""Maximum content blocks, contents or messages of one result."""
MAX_META_BYTES = 64 * 1024
"""Maximum bytes of JSON in one `_meta`."""
MAX_ORIGIN_CHARACTERS = 256
"""Maximum characters of the name prefixes of all proxies before this one."""
_ORIGIN = re.compile(rf"[A-Za-z0-9_.\-]{{0,{MAX_ORIGIN_CHARACTERS}}}")
_BLOCK_FIELDS: dict[str, dict[str, type]] = {
    "text": {"text": str},
    "image": {"data": str, "mimeType": str},
    "audio": {"data": str, "mimeType": str},
    "resource_link": {"uri": str, "name": str},
    "resource": {"resource": dict},
}
"""Types of content blocks, with their required members."""


class MalformedResult(ValueError):
    """Malformed result of the remote server. The text quotes no content."""


def parse_tool_result(
    raw: Wire, *, output: ToolOutput | None, origin: str = "", is_for_pages: bool = False
) -> RelayedResult:
    """Validate the result of a tool against its schema. Raises MalformedResult.

    `origin` is the prefix that the proxy adds to names. Of a tool that `is_for_pages` of the remote server, questions
    and errors of fields are kept.
    """
    is_error = raw.get("isError", False)
    if type(is_error) is not bool:
        raise MalformedResult("isError must be true or false")
    body = RelayedResult(content=_check_blocks(raw.get("content", [])), isError=is_error)

    structured = raw.get("structuredContent")
    if structured is not None:
        if output is not None and not is_error:
            try:
                output.to_structured(structured)
            except OutputError:
                raise MalformedResult("the structured content does not fit the tool's output schema") from None
        body["structuredContent"] = structured
    elif output is not None and not is_error:
        raise MalformedResult("the structured content that the tool's output schema promises is missing")
    return _add_page_meta(_add_meta(body, raw), raw, origin, (ERRORS_KEY, QUESTION_KEY) if is_for_pages else ())


def parse_prompt_result(raw: Wire) -> RelayedResult:
    """Validate the messages of a prompt. Raises MalformedResult."""
    given = raw.get("messages")
    if type(given) is not list or len(given) > MAX_BLOCKS:
        raise MalformedResult("messages are not a list, or too many")
    for message in given:
        if type(message) is not dict or message.get("role") not in ("user", "assistant"):
            raise MalformedResult("a message has no role")

    contents = _check_blocks([message.get("content") for message in given])
    pairs = zip(given, contents, strict=True)
    body = RelayedResult(messages=[{"role": message["role"], "content": content} for message, content in pairs])
    if type(raw.get("description")) is str:
        body["description"] = raw["description"]
    return _add_meta(body, raw)


def parse_read_result(raw: Wire) -> RelayedResult:
    """Validate the contents of a resource. Raises MalformedResult."""
    given = raw.get("contents")
    if type(given) is not list or len(given) > MAX_BLOCKS:
        raise MalformedResult("contents are not a list, or too many")
    size = 0
    for contents in given:
        size += _measure_contents(contents)
        if size > MAX_RESULT_CHARACTERS:
            raise MalformedResult("the contents are too large")
    return _add_meta(RelayedResult(contents=[remove_own_keys(contents) for contents in given]), raw)


def parse_completion(raw: Wire) -> Completion:
    """Validate suggested values. Raises MalformedResult."""
    raw_completion = raw.get("completion")
    values = raw_completion.get("values") if type(raw_completion) is dict else None
    if type(raw_completion) is not dict or type(values) is not list or not all(type(value) is str for value in values):
        raise MalformedResult("the completion has no list of strings")
    total, has_more = raw_completion.get("total"), raw_completion.get("hasMore")
    return Completion(
        values, total if type(total) is int and total >= 0 else None, has_more if type(has_more) is bool else None
    )


def extract_meta(raw: Wire) -> Wire:
    """Return the `_meta` without keys of the protocol and of this project; empty if it is too large."""
    meta = raw.get("_meta")
    if type(meta) is not dict or not meta:
        return {}
    members = {key: value for key, value in meta.items() if not is_reserved(key) and not is_own(key)}
    return members if not members or len(jsonrpc.dumps(members)) <= MAX_META_BYTES else {}


def _add_page_meta(body: RelayedResult, raw: Wire, origin: str, keys: tuple[str, ...]) -> RelayedResult:
    """Add the origin to a result with HTML or questions, so that pages of other servers refuse them."""
    given = raw.get("_meta")
    meta: Wire = given if type(given) is dict else {}
    kept = {key: meta[key] for key in keys if key in meta}
    structured = body.get("structuredContent")
    has_html = isinstance(structured, Mapping) and "html" in structured
    if not kept and not has_html:
        return body
    if len(jsonrpc.dumps(kept)) > MAX_META_BYTES:
        raise MalformedResult("its question is too large")
    before = meta.get(ORIGIN_KEY, "")
    known = before if type(before) is str and _ORIGIN.fullmatch(before) else ""
    body["_meta"] = {**body.get("_meta", {}), **kept, ORIGIN_KEY: origin + known}
    return body


def _add_meta(body: RelayedResult, raw: Wire) -> RelayedResult:
    if raw.get("_meta") and (meta := extract_meta(raw)):
        body["_meta"] = meta
    return body


def _check_blocks(given: Any) -> list[Wire]:
    if type(given) is not list or len(given) > MAX_BLOCKS:
        raise MalformedResult("the content is not a list, or too long")

    size = 0
    for block in given:
        block_type = block.get("type") if type(block) is dict else None
        fields = _BLOCK_FIELDS.get(block_type) if type(block_type) is str else None
        if fields is None:
            raise MalformedResult("a content block has an unknown type")
        for name, kind in fields.items():
            value: Any = block.get(name)
            if type(value) is not kind:
                raise MalformedResult(f"a content block of type {block['type']} has no {name}")
            size += len(str(value)) if kind is str else _measure_contents(value)
        if "annotations" in block and type(block["annotations"]) is not dict:
            raise MalformedResult("annotations are not an object")

    if size > MAX_RESULT_CHARACTERS:
        raise MalformedResult("the content is too large")
    return [_check_icons(remove_own_keys_of_block(block)) for block in given]


def _measure_contents(contents: Any) -> int:
    if type(contents) is not dict or type(contents.get("uri")) is not str:
        raise MalformedResult("the contents of a resource have no uri")
    data = contents.get("text", contents.get("blob"))
    if type(data) is not str or ("text" in contents and "blob" in contents):
        raise MalformedResult("the contents of a resource have neither text nor blob")
    return len(data)


def _check_icons(block: Wire) -> Wire:
    """Return a link without icons that are no images."""
    icons = block.get("icons")
    if icons is None or (type(icons) is list and all(map(has_valid_source, icons))):
        return block
    valid_icons = [icon for icon in icons if has_valid_source(icon)] if type(icons) is list else []
    return {
        **{name: value for name, value in block.items() if name != "icons"},
        **({"icons": valid_icons} if valid_icons else {}),
    }
