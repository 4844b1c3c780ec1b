"""Parts of request bodies: media types, files in base64, and multipart forms."""

import base64
import mimetypes
import secrets
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from mcp_django.contrib.http_tools.argument_layout import ArgumentValueError
from mcp_django.extensions.internal_requests import RequestContent

JSON_MEDIA_TYPE = "application/json"
FORM_MEDIA_TYPE = "application/x-www-form-urlencoded"
MULTIPART_MEDIA_TYPE = "multipart/form-data"
BINARY_MEDIA_TYPE = "application/octet-stream"


@dataclass(frozen=True, slots=True)
class FormPart:
    """Content of one part of a multipart form."""

    content: bytes
    content_type: str = ""
    filename: str | None = None
    """Name of the file; None if the part is not a file."""


def is_json(media_type: str) -> bool:
    """Return True for JSON and media types based on it (RFC 6839)."""
    plain = media_type.partition(";")[0].strip().lower()
    return plain == JSON_MEDIA_TYPE or plain.endswith("+json")


def includes_json(media_range: str) -> bool:
    """Return True for JSON, and for ranges of media types that include it."""
    plain = media_range.partition(";")[0].strip().lower()
    return is_json(plain) or plain in ("text/json", "*/*", "application/*")


def decode_base64(value: Any, argument: str, path: str = "") -> bytes:
    """Return the bytes of an argument, or of a place inside it, in base64.

    Raises:
        ArgumentValueError: the value is not base64.
    """
    try:
        return base64.b64decode(value, validate=True)
    except ValueError:
        raise ArgumentValueError(argument, "is not base64; encode the bytes in base64", path) from None


def decode_file(file: Mapping[str, Any], content: bytes, filename: str, media_type: str = "") -> FormPart:
    """Return the part for a file argument.

    The media type is that of the argument, else `media_type`, else guessed by the name.
    """
    guessed = media_type or mimetypes.guess_type(filename)[0] or BINARY_MEDIA_TYPE
    return FormPart(content, str(file.get("content_type") or guessed), filename)


def encode_multipart(parts: Iterable[tuple[str, FormPart | str]]) -> RequestContent:
    """Encode the parts or texts of a form, each with its field's name (RFC 7578)."""
    boundary = secrets.token_hex(16)
    chunks: list[bytes] = []
    for name, value in parts:
        part = FormPart(value.encode()) if isinstance(value, str) else value
        head = f'--{boundary}\r\nContent-Disposition: form-data; name="{quote_filename(name)}"'
        if part.filename is not None:
            head += f'; filename="{quote_filename(part.filename)}"'
        if part.content_type:
            head += f"\r\nContent-Type: {remove_unprintable(part.content_type)}"
        chunks += [head.encode(), b"\r\n\r\n", part.content, b"\r\n"]
    chunks.append(f"--{boundary}--\r\n".encode())
    return RequestContent(b"".join(chunks), f"{MULTIPART_MEDIA_TYPE}; boundary={boundary}")


def quote_filename(text: str) -> str:
    """Escape a name as browsers do (WHATWG HTML, multipart/form-data)."""
    return text.replace("\r", "%0D").replace("\n", "%0A").replace('"', "%22").replace("\\", "%5C").replace("\0", "")


def remove_unprintable(text: str) -> str:
    """Return the text without control characters and line breaks."""
    return "".join(char for char in text if char.isprintable())
