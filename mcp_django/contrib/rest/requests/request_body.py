"""Body of a request, in a media type that the view parses.

The body is JSON, unless a file is given or the view only accepts forms. Then it is a form as a browser would send it,
so the view's own parser handles the uploaded files. Lists and objects in forms follow DRF's format
(`rest_framework.utils.html`).
"""

from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import urlencode

from rest_framework import serializers
from rest_framework.parsers import FileUploadParser

from mcp_django.contrib.http_tools.bodies import (
    FORM_MEDIA_TYPE,
    JSON_MEDIA_TYPE,
    MULTIPART_MEDIA_TYPE,
    FormPart,
    decode_base64,
    decode_file,
    encode_multipart,
    is_json,
    quote_filename,
)
from mcp_django.extensions.calls import jsonrpc
from mcp_django.extensions.internal_requests import RequestContent
from mcp_django.extensions.schemas import JSONMapping


def decode_upload(value: Any, argument: str, path: str = "") -> Any:
    """Decode the file, or the list of files, of an argument, or of a place inside it.

    Raises:
        ArgumentValueError: the content is not base64.
    """
    if isinstance(value, list):
        return [decode_upload(item, argument, f"{path}[{number}]") for number, item in enumerate(value)]
    if value is None:
        return None
    return decode_file(value, decode_base64(value["content"], argument, f"{path}.content"), value["name"])


class BodyWriter:
    """Encoder of request bodies for one view."""

    def __init__(self, parsers: list[Any], fields: JSONMapping) -> None:
        """Store the parsers; `fields` are those of the body's serializer, if known. Only forms need them."""
        types = [str(parser.media_type) for parser in parsers]
        self._json = next((name for name in types if is_json(name)), "")
        self._forms = [name for name in types if name in (MULTIPART_MEDIA_TYPE, FORM_MEDIA_TYPE)]
        self.is_file_body = not self._json and not self._forms and any(isinstance(p, FileUploadParser) for p in parsers)
        """True if the view only accepts a single raw file as its body."""
        self.needs_form = bool(self._forms) and not self._json
        """True if the view only accepts forms."""
        self._fields = fields

    def write(self, value: Any) -> RequestContent:
        """Encode `value` as a body: any JSON, with a `FormPart` for each file."""
        if self.is_file_body and isinstance(value, Mapping) and isinstance(value.get("file"), FormPart):
            upload = value["file"]
            disposition = f'attachment; filename="{quote_filename(upload.filename)}"'
            return RequestContent(upload.content, upload.content_type, disposition)

        has_file = isinstance(value, Mapping) and any(_is_upload(item) for item in value.values())
        if has_file or (isinstance(value, Mapping) and self.needs_form):
            pairs = [
                pair for name, item in value.items() for pair in _iter_form_pairs(name, item, self._fields.get(name))
            ]
            if has_file or MULTIPART_MEDIA_TYPE in self._forms:
                return encode_multipart(pairs)
            return RequestContent(urlencode(pairs).encode(), FORM_MEDIA_TYPE)
        return RequestContent(jsonrpc.dumps(value), self._json or JSON_MEDIA_TYPE)


def _is_upload(value: Any) -> bool:
    return isinstance(value, FormPart) or (
        isinstance(value, list) and any(isinstance(item, FormPart) for item in value)
    )


def _iter_form_pairs(name: str, value: Any, field: Any = None) -> Iterator[tuple[str, Any]]:
    if isinstance(value, FormPart):
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
        yield name, str(value).lower() if isinstance(value, bool) else str(value)
