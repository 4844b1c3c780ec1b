"""Body of a request, in a media type that the view parses.

The body is JSON, unless a file is given or the view only accepts forms. Then it is a form as a browser would send it,
so the view's own parser handles the uploaded files. Lists and objects in forms follow DRF's format
(`rest_framework.utils.html`).
"""

import base64
import binascii
import mimetypes
import secrets
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

from rest_framework import serializers
from rest_framework.parsers import FileUploadParser

from mcp_django.internal_request import RequestContent
from mcp_django.protocol import jsonrpc
from mcp_django.schema import ArgumentError

JSON_MEDIA_TYPE = "application/json"
MULTIPART_MEDIA_TYPE = "multipart/form-data"
FORM_MEDIA_TYPE = "application/x-www-form-urlencoded"


@dataclass(frozen=True, slots=True)
class FileUpload:
    """File given as an argument."""

    name: str
    content: bytes
    content_type: str


def decode_upload(value: Any, name: str) -> Any:
    """Decode the file, or the list of files, of an argument.

    Raises:
        ArgumentError: the content is not base64.
    """
    if isinstance(value, list):
        return [decode_upload(item, f"{name}[{number}]") for number, item in enumerate(value)]
    if value is None:
        return None
    try:
        content = base64.b64decode(value["content"], validate=True)
    except (binascii.Error, ValueError):
        raise ArgumentError(f"{name}.content: is not base64; encode the file's bytes in base64") from None
    guessed = value.get("content_type") or mimetypes.guess_type(value["name"])[0]
    return FileUpload(value["name"], content, guessed or "application/octet-stream")


class BodyWriter:
    """Encoder of request bodies for one view."""

    def __init__(self, parsers: list[Any], fields: Mapping[str, Any]) -> None:
        """Store the parsers; `fields` are those of the body's serializer, if known."""
        types = [str(parser.media_type) for parser in parsers]
        self._json = next((name for name in types if is_json(name)), "")
        self._forms = [name for name in types if name in (MULTIPART_MEDIA_TYPE, FORM_MEDIA_TYPE)]
        self.is_file_body = not self._json and not self._forms and any(isinstance(p, FileUploadParser) for p in parsers)
        """True if the view only accepts a single raw file as its body."""
        self._fields = fields

    def write(self, value: Any) -> RequestContent:
        """Encode `value` as a body: any JSON, with a `FileUpload` for each file."""
        if self.is_file_body and isinstance(value, Mapping) and isinstance(value.get("file"), FileUpload):
            upload = value["file"]
            return RequestContent(upload.content, upload.content_type, f'attachment; filename="{_quote(upload.name)}"')

        has_file = isinstance(value, Mapping) and any(_is_upload(item) for item in value.values())
        if has_file or (isinstance(value, Mapping) and self._forms and not self._json):
            pairs = [
                pair for name, item in value.items() for pair in _iter_form_pairs(name, item, self._fields.get(name))
            ]
            if has_file or MULTIPART_MEDIA_TYPE in self._forms:
                return _encode_multipart(pairs)
            return RequestContent(urlencode(pairs).encode(), FORM_MEDIA_TYPE)
        return RequestContent(jsonrpc.dumps(value), self._json or JSON_MEDIA_TYPE)


def is_json(media_type: str) -> bool:
    """Return True for JSON and media types based on it (RFC 6839)."""
    plain = media_type.partition(";")[0].strip().lower()
    return plain == JSON_MEDIA_TYPE or plain.endswith("+json")


def _is_upload(value: Any) -> bool:
    return isinstance(value, FileUpload) or (
        isinstance(value, list) and any(isinstance(item, FileUpload) for item in value)
    )


def _iter_form_pairs(name: str, value: Any, field: Any = None) -> Iterator[tuple[str, Any]]:
    if isinstance(value, FileUpload):
        yield name, value
    elif isinstance(field, serializers.JSONField):
        yield name, jsonrpc.dumps(value).decode()
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from _iter_form_pairs(f"{name}.{key}", item)
    elif isinstance(value, list):
        for number, item in enumerate(value):
            if isinstance(item, Mapping):
                for key, inner in item.items():
                    yield from _iter_form_pairs(f"{name}[{number}]{key}", inner)
            else:
                yield from _iter_form_pairs(name, item)
    elif value is None:
        yield name, ""  # forms have no null
    else:
        yield name, ("true" if value else "false") if isinstance(value, bool) else str(value)


def _encode_multipart(pairs: list[tuple[str, Any]]) -> RequestContent:
    boundary = secrets.token_hex(16)
    parts: list[bytes] = []
    for name, value in pairs:
        head = f'--{boundary}\r\nContent-Disposition: form-data; name="{_quote(name)}"'
        if isinstance(value, FileUpload):
            head += f'; filename="{_quote(value.name)}"\r\nContent-Type: {_remove_line_breaks(value.content_type)}'
        content = value.content if isinstance(value, FileUpload) else value.encode()
        parts += [head.encode(), b"\r\n\r\n", content, b"\r\n"]
    parts.append(f"--{boundary}--\r\n".encode())
    return RequestContent(b"".join(parts), f"{MULTIPART_MEDIA_TYPE}; boundary={boundary}")


def _quote(text: str) -> str:
    """Escape a name or file name as browsers do (WHATWG HTML, multipart/form-data)."""
    return text.replace("\r", "%0D").replace("\n", "%0A").replace('"', "%22").replace("\\", "%5C")


def _remove_line_breaks(text: str) -> str:
    return text.replace("\r", "").replace("\n", "")
