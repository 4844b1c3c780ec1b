"""Content of results, for the page: text, JSON, images, audio, and resources."""

import base64
import binascii
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from mcp_django.contrib.control_room.playground.messages import format_json

IMAGE_TYPES = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})
"""Types of images that are shown. SVG is not among them, because it may hold scripts."""
AUDIO_TYPES = frozenset({"audio/mpeg", "audio/ogg", "audio/wav", "audio/webm", "audio/mp4"})
MAX_SHOWN_BYTES = 4 * 1024 * 1024
"""Maximum bytes of an image or of audio on the page."""


class ContentBlock(NamedTuple):
    """Part of a result."""

    kind: str
    """"text", "json", "image", "audio" or "resource"."""
    text: str
    """Text, or a data URL of an image or of audio."""
    title: str = ""


def list_blocks(result: Mapping[str, Any]) -> list[ContentBlock]:
    """Return the parts of the result of a tool, a prompt or a resource."""
    blocks = [_build_block(block) for block in _iter_content(result)]
    if "structuredContent" in result:
        blocks.append(ContentBlock("json", format_json(result["structuredContent"]), "structuredContent"))
    return blocks


def _iter_content(result: Mapping[str, Any]) -> Iterable[Mapping[str, Any]]:
    yield from result.get("content", ())
    for message in result.get("messages", ()):
        yield {**message["content"], "title": message["role"]}
    for contents in result.get("contents", ()):
        yield {"type": "resource", "resource": contents}


def _build_block(block: Mapping[str, Any]) -> ContentBlock:
    kind, title = block.get("type"), str(block.get("title", ""))
    if kind == "text":
        return ContentBlock("text", str(block.get("text", "")), title)
    if kind in ("image", "audio"):
        return _build_media(str(kind), block.get("data"), block.get("mimeType"), title)
    if kind == "resource":
        resource = block.get("resource", {})
        title = str(resource.get("uri", title))
        if "text" in resource:
            return ContentBlock("resource", str(resource["text"]), title)
        media = str(resource.get("mimeType", "")).partition("/")[0]
        if media in ("image", "audio"):
            return _build_media(media, resource.get("blob"), resource.get("mimeType"), title)
    return ContentBlock("json", format_json(block), title)


def _build_media(kind: str, data: Any, media_type: Any, title: str) -> ContentBlock:
    """Return an image or audio; its size as text if it cannot be shown."""
    allowed = IMAGE_TYPES if kind == "image" else AUDIO_TYPES
    try:
        size = len(base64.b64decode(str(data), validate=True))
    except (binascii.Error, ValueError):
        return ContentBlock("text", f"{media_type}: invalid base64", title)
    if media_type not in allowed or size > MAX_SHOWN_BYTES:
        return ContentBlock("text", f"{media_type}, {size} bytes", title)
    return ContentBlock(kind, f"data:{media_type};base64,{data}", title)
