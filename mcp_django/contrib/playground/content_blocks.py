"""Content of results for the page: text, JSON, media, files and resources.

The page has no `data:` URLs, which a strict Content-Security-Policy blocks: its script decodes the bytes of media.
"""

import base64
import binascii
from collections.abc import Iterable, Mapping
from mimetypes import guess_extension
from typing import Any, NamedTuple

from django.template.defaultfilters import filesizeformat
from django.utils.translation import gettext as _

from mcp_django.contrib.playground.messages import format_json

IMAGE_TYPES = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})
"""Types of images that are shown. SVG is not among them, because it may hold scripts."""
AUDIO_TYPES = frozenset({"audio/mpeg", "audio/ogg", "audio/wav", "audio/webm", "audio/mp4"})
MAX_SHOWN_BYTES = 4 * 1024 * 1024
"""Maximum bytes of an image, of audio or of a file on the page."""


class ContentBlock(NamedTuple):
    """Part of a result."""

    kind: str
    """"text", "json", "image", "audio", "file", "resource" or "link"."""
    text: str
    """Text; base64 of an image, of audio or of a file."""
    title: str = ""
    uri: str = ""
    """URI of a resource, which the page can open."""
    media_type: str = ""
    size: int = 0
    """Size in bytes of an image, of audio or of a file."""

    @property
    def is_media(self) -> bool:
        """True for bytes."""
        return self.kind in ("image", "audio", "file")

    @property
    def file_name(self) -> str:
        """Name under which the bytes are saved."""
        return f"result{guess_extension(self.media_type) or '.bin'}"


def list_blocks(result: Mapping[str, Any]) -> list[ContentBlock]:
    """Return the parts of the result of a tool, a prompt or a resource."""
    blocks = [_build_block(block) for block in _iter_content(result)]
    if "structuredContent" in result:
        blocks.append(ContentBlock("json", format_json(result["structuredContent"]), "structuredContent"))
    return blocks


def _iter_content(result: Mapping[str, Any]) -> Iterable[Any]:
    yield from _get_list(result, "content")
    for message in _get_list(result, "messages"):
        content = message.get("content") if isinstance(message, Mapping) else None
        yield {**content, "title": message.get("role", "")} if isinstance(content, Mapping) else message
    for contents in _get_list(result, "contents"):
        yield {"type": "resource", "resource": contents}


def _get_list(result: Mapping[str, Any], key: str) -> list[Any]:
    found = result.get(key)
    return found if isinstance(found, list) else []


def _build_block(block: Any) -> ContentBlock:
    """Return a part; JSON for one that breaks the rules of its type."""
    if not isinstance(block, Mapping):
        return ContentBlock("json", format_json(block))
    kind, title = block.get("type"), str(block.get("title", ""))
    if kind == "text":
        return ContentBlock("text", str(block.get("text", "")), title)
    if kind in ("image", "audio"):
        return _build_media(str(kind), block.get("data"), block.get("mimeType"), title)
    if kind == "resource_link":
        name = title or str(block.get("name", ""))
        return ContentBlock("link", str(block.get("description", "")), name, str(block.get("uri", "")))
    if kind == "resource" and isinstance(block.get("resource"), Mapping):
        return _build_resource(block["resource"])
    return ContentBlock("json", format_json(block), title)


def _build_resource(resource: Mapping[str, Any]) -> ContentBlock:
    uri, media_type = str(resource.get("uri", "")), str(resource.get("mimeType", ""))
    if "text" in resource:
        return ContentBlock("resource", str(resource["text"]), uri, uri, media_type)
    kind = media_type.partition("/")[0]
    return _build_media(kind, resource.get("blob"), media_type, uri, uri)


def _build_media(kind: str, data: Any, media_type: Any, title: str, uri: str = "") -> ContentBlock:
    """Return an image, audio or a file; its size as text if it is too large for the page."""
    try:
        size = len(base64.b64decode(str(data), validate=True))
    except (binascii.Error, ValueError):
        return ContentBlock("text", _("%(type)s: invalid base64") % {"type": media_type}, title, uri)
    if size > MAX_SHOWN_BYTES:
        return ContentBlock(
            "text", _("%(type)s, %(size)s") % {"type": media_type, "size": filesizeformat(size)}, title, uri
        )
    shown = {"image": IMAGE_TYPES, "audio": AUDIO_TYPES}.get(kind, frozenset())
    kind = kind if media_type in shown else "file"
    return ContentBlock(kind, str(data), title, uri, str(media_type), size)
