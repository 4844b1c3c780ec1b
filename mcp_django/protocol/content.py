"""Content: blocks of tool results and prompt messages, and contents of resources.

``to_wire()`` returns the richest form; a Revision reduces it. Binary data is given as bytes, or as base64 text
(standard alphabet, padded).
"""

from __future__ import annotations

import base64
import binascii
import mimetypes
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Self

from mcp_django.protocol.types import Annotations, Icon, Role

_SIGNATURES = (
    ("image/png", 0, b"\x89PNG\r\n\x1a\n"),
    ("image/jpeg", 0, b"\xff\xd8\xff"),
    ("image/gif", 0, b"GIF8"),
    ("image/webp", 8, b"WEBP"),
    ("audio/wav", 8, b"WAVE"),
    ("audio/ogg", 0, b"OggS"),
    ("audio/flac", 0, b"fLaC"),
    ("audio/mpeg", 0, b"ID3"),
    ("audio/mpeg", 0, b"\xff\xfb"),
)
_ALIASES = {"audio/x-wav": "audio/wav", "audio/x-flac": "audio/flac"}


def _encoded(data: bytes | str) -> str:
    return data if isinstance(data, str) else base64.b64encode(data).decode("ascii")


def _checked(data: bytes | str, where: str) -> None:
    if isinstance(data, str):
        try:
            base64.b64decode(data, validate=True)
        except (binascii.Error, ValueError):
            raise ValueError(f"{where}: text must be base64; give anything else as bytes") from None
    elif not isinstance(data, bytes):
        raise TypeError(f"{where}: data must be bytes or base64 text, not {type(data).__name__}")


def _sniffed(data: bytes, kind: str) -> str:
    for mime_type, offset, signature in _SIGNATURES:
        if mime_type.startswith(kind) and data.startswith(signature, offset):
            return mime_type
    raise ValueError(f"unrecognised {kind} format; pass mime_type")


def _extras(wire: dict[str, Any], annotations: Annotations | None, meta: Mapping[str, Any] | None) -> dict[str, Any]:
    if annotations is not None:
        wire["annotations"] = annotations.to_wire()
    if meta:
        wire["_meta"] = dict(meta)
    return wire


@dataclass(frozen=True, slots=True)
class TextContent:
    """A text block."""

    text: str
    annotations: Annotations | None = None
    meta: Mapping[str, Any] | None = None

    def to_wire(self) -> dict[str, Any]:
        """Return the wire object."""
        return _extras({"type": "text", "text": self.text}, self.annotations, self.meta)


@dataclass(frozen=True, slots=True)
class _Media:
    """Bytes with a media type.

    Raises:
        ValueError: `data` is text but not base64.
    """

    KIND: ClassVar[str]

    data: bytes | str
    mime_type: str
    annotations: Annotations | None = None
    meta: Mapping[str, Any] | None = None

    def __post_init__(self) -> None:
        _checked(self.data, type(self).__name__)

    @classmethod
    def from_bytes(cls, data: bytes, mime_type: str | None = None) -> Self:
        """Create a block from bytes.

        The type of PNG, JPEG, GIF, WebP, WAV, Ogg, FLAC and MP3 is detected.

        Raises:
            ValueError: the type is neither given nor recognised.
        """
        return cls(data, mime_type or _sniffed(data, cls.KIND))

    @classmethod
    def from_file(cls, path: str | Path, mime_type: str | None = None) -> Self:
        """Create a block from a file.

        The type comes from `mime_type`, else from the file's name, else from its bytes.
        """
        return cls.from_bytes(Path(path).read_bytes(), mime_type or _guessed(path, f"{cls.KIND}/"))

    def to_wire(self) -> dict[str, Any]:
        """Return the wire object."""
        wire = {"type": self.KIND, "data": _encoded(self.data), "mimeType": self.mime_type}
        return _extras(wire, self.annotations, self.meta)


@dataclass(frozen=True, slots=True)
class ImageContent(_Media):
    """An image, from bytes or base64 text."""

    KIND: ClassVar[str] = "image"


@dataclass(frozen=True, slots=True)
class AudioContent(_Media):
    """Audio, from bytes or base64 text."""

    KIND: ClassVar[str] = "audio"


def _guessed(path: str | Path, kind: str) -> str | None:
    found = mimetypes.guess_type(str(path))[0]
    return _ALIASES.get(found, found) if found is not None and found.startswith(kind) else None


@dataclass(frozen=True, slots=True)
class ResourceLink:
    """A link to a resource that the client may read. The resource may be unlisted."""

    uri: str
    name: str
    title: str | None = None
    description: str | None = None
    mime_type: str | None = None
    size: int | None = None
    """Size of the raw content in bytes."""
    annotations: Annotations | None = None
    icons: Sequence[Icon] = ()
    meta: Mapping[str, Any] | None = None

    def to_wire(self) -> dict[str, Any]:
        """Return the wire object."""
        wire: dict[str, Any] = {"type": "resource_link", "uri": self.uri, "name": self.name}
        for key, value in (("title", self.title), ("description", self.description), ("mimeType", self.mime_type)):
            if value is not None:
                wire[key] = str(value)
        if self.size is not None:
            wire["size"] = self.size
        if self.icons:
            wire["icons"] = [icon.to_wire() for icon in self.icons]
        return _extras(wire, self.annotations, self.meta)


@dataclass(frozen=True, slots=True)
class TextResourceContents:
    """Text contents of a resource. The default of `uri` is the URI that was read."""

    text: str
    uri: str | None = None
    mime_type: str | None = None
    meta: Mapping[str, Any] | None = None

    def to_wire(self) -> dict[str, Any]:
        """Return the wire object, without ``uri`` if it is not set."""
        return _contents({"text": self.text}, self.uri, self.mime_type, self.meta)


@dataclass(frozen=True, slots=True)
class BlobResourceContents:
    """Binary contents of a resource. The default of `uri` is the URI that was read.

    Raises:
        ValueError: `data` is text but not base64.
    """

    data: bytes | str
    uri: str | None = None
    mime_type: str | None = None
    meta: Mapping[str, Any] | None = None

    def __post_init__(self) -> None:
        _checked(self.data, type(self).__name__)

    def to_wire(self) -> dict[str, Any]:
        """Return the wire object, without ``uri`` if it is not set."""
        return _contents({"blob": _encoded(self.data)}, self.uri, self.mime_type, self.meta)


def _contents(
    body: dict[str, Any], uri: str | None, mime_type: str | None, meta: Mapping[str, Any] | None
) -> dict[str, Any]:
    wire: dict[str, Any] = {} if uri is None else {"uri": uri}
    if mime_type is not None:
        wire["mimeType"] = mime_type
    return _extras({**wire, **body}, None, meta)


ResourceContents = TextResourceContents | BlobResourceContents


@dataclass(frozen=True, slots=True)
class EmbeddedResource:
    """Contents of a resource inside a result or message.

    Raises:
        ValueError: the contents have no URI.
    """

    resource: ResourceContents
    annotations: Annotations | None = None
    meta: Mapping[str, Any] | None = None

    def __post_init__(self) -> None:
        if self.resource.uri is None:
            raise ValueError("EmbeddedResource: the contents need a uri; set it explicitly")

    def to_wire(self) -> dict[str, Any]:
        """Return the wire object."""
        return _extras({"type": "resource", "resource": self.resource.to_wire()}, self.annotations, self.meta)


ContentBlock = TextContent | ImageContent | AudioContent | ResourceLink | EmbeddedResource

_BLOCKS = frozenset({TextContent, ImageContent, AudioContent, ResourceLink, EmbeddedResource})


def is_content(value: Any) -> bool:
    """Return True for a content block."""
    return type(value) in _BLOCKS


def is_content_type(annotation: Any) -> bool:
    """Return True for the type of a content block. The caller must split unions."""
    return isinstance(annotation, type) and annotation in _BLOCKS


@dataclass(frozen=True, slots=True)
class PromptMessage:
    """A message of a prompt: a role with a text or a single content block.

    Raises:
        ValueError: the role is neither ``user`` nor ``assistant``.
        TypeError: the content is neither text nor a content block.
    """

    role: Role | str
    content: ContentBlock | str

    def __post_init__(self) -> None:
        if self.role not in (Role.USER, Role.ASSISTANT):
            raise ValueError(f"role {self.role!r} must be 'user' or 'assistant'")
        if not (isinstance(self.content, str) or is_content(self.content)):
            raise TypeError(f"a message holds text or one content block, not {type(self.content).__name__}")

    def to_wire(self) -> dict[str, Any]:
        """Return the wire object."""
        content = TextContent(self.content) if isinstance(self.content, str) else self.content
        return {"role": str(self.role), "content": content.to_wire()}


def user(content: ContentBlock | str) -> PromptMessage:
    """Create a message from the user."""
    return PromptMessage(Role.USER, content)


def assistant(content: ContentBlock | str) -> PromptMessage:
    """Create a message from the assistant."""
    return PromptMessage(Role.ASSISTANT, content)
