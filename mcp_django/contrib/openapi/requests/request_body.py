"""Request bodies: JSON, forms with or without files, text, or bytes.

The most expressive media type of the document is used. Files and bytes are passed in base64.
"""

import base64
import binascii
import mimetypes
import secrets
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from mcp_django.contrib.openapi.document.references import References
from mcp_django.contrib.openapi.document.schemas import Schema, Schemas
from mcp_django.contrib.openapi.requests.parameters import Parameter, plain_text
from mcp_django.protocol import jsonrpc
from mcp_django.schema import ArgumentError

JSON, FORM, MULTIPART = "application/json", "application/x-www-form-urlencoded", "multipart/form-data"
BYTES = "application/octet-stream"
_TEXTS = ("application/xml", "application/yaml", "application/graphql", "application/javascript")
MAX_FILE = 16 * 1024 * 1024
"""Maximum bytes of one file."""
FILE: Schema = {
    "type": ["string", "object"],
    "description": "A file: its bytes in base64, or these as content, with a name and a content_type.",
    "properties": {
        "content": {"type": "string", "contentEncoding": "base64"},
        "name": {"type": "string", "maxLength": 255},
        "content_type": {"type": "string", "maxLength": 255},
    },
    "required": ["content"],
    "additionalProperties": False,
}
_BYTES: Schema = {"type": "string", "contentEncoding": "base64", "description": "The bytes, in base64."}


@dataclass(frozen=True, slots=True)
class Content:
    """Encoded body of a request."""

    content: bytes = b""
    content_type: str = ""


@dataclass(frozen=True, slots=True, eq=False)
class Body:
    """The body of an operation: its schema and its encoding."""

    media_type: str
    schema: Any
    """Schema as in the document."""
    encoding: Mapping[str, Any]
    is_required: bool
    description: str = ""
    members: Mapping[str, Any] | None = None
    """Schemas of the members that become arguments; None if the body is one argument."""
    required: tuple[str, ...] = ()
    """Members that are required if there is a body."""
    files: frozenset[str] = frozenset()
    """Members of a multipart form that are files, or lists of files."""

    @property
    def kind(self) -> str:
        """Encoding: "json", "form", "multipart", "text" or "bytes"."""
        return _kind(self.media_type)

    def member(self, name: str, schemas: Schemas) -> Schema:
        """Build the schema of the argument for one member."""
        assert self.members is not None
        schema = self.members[name]
        if name not in self.files:
            return schemas.of(schema)
        is_list = isinstance(schema, Mapping) and schema.get("type") == "array"
        about = {"description": schema["description"]} if isinstance(schema.get("description"), str) else {}
        return {"type": "array", "items": FILE, **about} if is_list else {**FILE, **_described(about)}

    def whole(self, schemas: Schemas) -> Schema:
        """Build the schema of a body that is one argument."""
        if self.kind == "bytes":
            return dict(_BYTES)
        if self.kind == "text":
            return {"type": "string", "description": f"The body, as {self.media_type}."}
        made = schemas.of(self.schema)
        return {**made, "description": self.description} if self.description and "description" not in made else made

    def written(self, value: Any) -> Content:
        """Encode a value as the body. Raises ArgumentError for invalid base64."""
        plain = self.media_type if "*" not in self.media_type else ""
        match self.kind:
            case "json":
                return Content(jsonrpc.dumps(value), plain or JSON)
            case "bytes":
                return Content(_decoded(value, "body"), plain or BYTES)
            case "text":
                plain = plain or "text/plain"
                return Content(str(value).encode(), plain if "charset" in plain else f"{plain}; charset=utf-8")

        if not isinstance(value, Mapping):
            raise ArgumentError("body: must be an object, because it is encoded as a form")
        if self.kind == "form":
            pairs = [pair for name, item in value.items() for pair in self._field(name).pairs(item)]
            return Content("&".join(f"{name}={text}" for name, text in pairs).encode(), FORM)

        return self._multipart(value)

    def _field(self, name: str) -> Parameter:
        """Build the parameter that encodes a form member (Encoding Object)."""
        said = self.encoding.get(name)
        said = said if isinstance(said, Mapping) else {}
        style = said.get("style", "form")
        explode = said.get("explode")
        is_json = str(said.get("contentType", "")).partition(";")[0].strip().lower().endswith("json")
        return Parameter(
            name=name,
            place="query",
            schema={},
            style=style if style in ("form", "spaceDelimited", "pipeDelimited", "deepObject") else "form",
            explode=explode if isinstance(explode, bool) else style == "form",
            is_json=is_json and "style" not in said,
        )

    def _multipart(self, value: Mapping[str, Any]) -> Content:
        boundary = secrets.token_hex(16)
        written: list[bytes] = []
        for name, item in value.items():
            said = self.encoding.get(name)
            stated = str(said.get("contentType", "")) if isinstance(said, Mapping) else ""
            stated = "" if "," in stated or "*" in stated else _line(stated)
            for head, content in _pieces(name, item, is_file=name in self.files, stated=stated):
                lead = f'--{boundary}\r\nContent-Disposition: form-data; name="{_quoted(name)}"{head}\r\n\r\n'
                written += [lead.encode(), content, b"\r\n"]
        written.append(f"--{boundary}--\r\n".encode())
        return Content(b"".join(written), f"{MULTIPART}; boundary={boundary}")


def body_of(entry: Any, references: References, where: str) -> Body | None:
    """Read a Request Body Object; None without a body. Raises DeclarationError."""
    if entry is None:
        return None

    found = references.resolved(entry, where)
    contents = found.get("content")
    if not isinstance(contents, Mapping) or not contents:
        return None

    media_type = min(contents, key=lambda name: (_ORDER.index(_kind(name)), list(contents).index(name)))
    chosen = contents[media_type] if isinstance(contents[media_type], Mapping) else {}
    encoding, description = chosen.get("encoding"), found.get("description")
    body = Body(
        media_type=_line(media_type.strip()),
        schema=chosen.get("schema", {}),
        encoding=encoding if isinstance(encoding, Mapping) else {},
        is_required=found.get("required") is True,
        description=description if isinstance(description, str) else "",
    )
    parts = _parts(body.schema, references, where) if body.kind in ("json", "form", "multipart") else None
    if parts is None:
        return body

    members = {name: inner for part in parts for name, inner in part.get("properties", {}).items()}
    required = [name for part in parts for name in _names(part.get("required"))]
    files = [name for name, inner in members.items() if body.kind == "multipart" and _is_file(inner, references, where)]
    resolved = {name: references.resolved(members[name], where) for name in files}
    return replace(
        body, members={**members, **resolved}, required=tuple(dict.fromkeys(required)), files=frozenset(files)
    )


_ORDER = ("json", "multipart", "form", "text", "bytes")


def _kind(media_type: str) -> str:
    plain = media_type.partition(";")[0].strip().lower()
    if plain in (JSON, "*/*", "application/*", "text/json") or plain.endswith("+json"):
        return "json"
    if plain == MULTIPART:
        return "multipart"
    if plain == FORM:
        return "form"
    return "text" if plain.startswith("text/") or plain in _TEXTS or plain.endswith("+xml") else "bytes"


def _parts(schema: Any, references: References, where: str, depth: int = 0) -> list[dict[str, Any]] | None:
    """Collect the schemas that define an object's members; None if other rules apply."""
    if not isinstance(schema, Mapping) or depth > 8:
        return None

    found = references.resolved(schema, where)
    if found.get("type", "object") != "object" or found.get("nullable") is True:
        return None

    extra = found.get("additionalProperties", False)
    if extra is not False or not _SHAPED.isdisjoint(found):
        return None

    parts: list[dict[str, Any]] = []
    for inner in found.get("allOf", ()) if isinstance(found.get("allOf"), list) else ():
        more = _parts(inner, references, where, depth + 1)
        if more is None:
            return None
        parts += more

    if isinstance(found.get("properties"), Mapping):
        parts.append(found)
    elif isinstance(found.get("required"), list):
        parts.append({"properties": {}, "required": found["required"]})

    return parts if any(part["properties"] for part in parts) else None


_SHAPED = frozenset({"oneOf", "anyOf", "not", "if", "patternProperties", "minProperties", "maxProperties", "enum"})
_SHAPED |= {"propertyNames", "dependentSchemas", "dependentRequired", "discriminator", "const"}


def _names(value: Any) -> list[str]:
    return [name for name in value if isinstance(name, str)] if isinstance(value, list) else []


def _is_file(schema: Any, references: References, where: str) -> bool:
    """Return True for bytes, or a list of them (OpenAPI, File Uploads)."""
    found = references.resolved(schema, where) if isinstance(schema, Mapping) else {}
    if found.get("type") == "array" and isinstance(found.get("items"), Mapping):
        found = references.resolved(found["items"], where)
    media_type = found.get("contentMediaType")
    by_type = isinstance(media_type, str) and "contentEncoding" not in found and not media_type.startswith("text/")
    return found.get("type", "string") == "string" and (found.get("format") == "binary" or by_type)


def _described(about: Schema) -> Schema:
    said = about.get("description")
    return {"description": f"{said} {FILE['description']}"} if said else {}


def _pieces(name: str, value: Any, *, is_file: bool, stated: str) -> Iterator[tuple[str, bytes]]:
    """Yield the parts of a multipart form for one member: rest of the header, content."""
    if isinstance(value, list):
        for item in value:
            yield from _pieces(name, item, is_file=is_file, stated=stated)
    elif is_file and value is not None:
        given = value if isinstance(value, Mapping) else {"content": value}
        filename = str(given.get("name") or f"{name}{mimetypes.guess_extension(stated) or ''}")
        media_type = str(given.get("content_type") or stated or mimetypes.guess_type(filename)[0] or BYTES)
        head = f'; filename="{_quoted(filename)}"\r\nContent-Type: {_line(media_type)}'
        yield head, _decoded(given.get("content"), name)
    elif isinstance(value, Mapping):
        yield f"\r\nContent-Type: {stated or JSON}", jsonrpc.dumps(value)
    else:
        yield f"\r\nContent-Type: {stated}" if stated else "", plain_text(value).encode()


def _decoded(value: Any, name: str) -> bytes:
    if not isinstance(value, str) or len(value) > MAX_FILE * 4 // 3 + 4:
        raise ArgumentError(f"{name}: must be base64 of {MAX_FILE // 1024 // 1024} MiB at most")
    try:
        return base64.b64decode(value, validate=True)
    except (binascii.Error, ValueError):
        raise ArgumentError(f"{name}: is not base64; encode the bytes in base64") from None


def _quoted(text: str) -> str:
    """Escape a name as browsers do (WHATWG HTML, multipart/form-data)."""
    return text.replace("\r", "%0D").replace("\n", "%0A").replace('"', "%22").replace("\\", "%5C").replace("\0", "")


def _line(text: str) -> str:
    return "".join(char for char in text if char.isprintable())
