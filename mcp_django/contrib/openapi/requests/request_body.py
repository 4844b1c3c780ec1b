"""Request bodies: JSON, forms with or without files, text, or bytes.

The most expressive media type of the document is used. Files and bytes are passed in base64.
"""

import mimetypes
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from mcp_django.contrib.http_tools.argument_layout import ArgumentValueError
from mcp_django.contrib.http_tools.bodies import (
    BINARY_MEDIA_TYPE,
    FORM_MEDIA_TYPE,
    JSON_MEDIA_TYPE,
    MULTIPART_MEDIA_TYPE,
    FormPart,
    decode_base64,
    decode_file,
    encode_multipart,
    includes_json,
    remove_unprintable,
)
from mcp_django.contrib.http_tools.parameters import OperationParameter, to_text
from mcp_django.contrib.http_tools.tools import Schema
from mcp_django.contrib.openapi.document.references import References
from mcp_django.contrib.openapi.document.schemas import OpenAPISchemas
from mcp_django.extensions.calls import jsonrpc
from mcp_django.extensions.internal_requests import RequestContent

_TEXT_TYPES = ("application/xml", "application/yaml", "application/graphql", "application/javascript")
MAX_FILE_BYTES = 16 * 1024 * 1024
"""Maximum bytes of one file."""
FILE_SCHEMA: Schema = {
    "description": "A file: its bytes in base64, or these as content, with a name and a content_type.",
    "anyOf": [
        {"type": "string"},
        {
            "type": "object",
            "properties": {
                "content": {"type": "string", "contentEncoding": "base64"},
                "name": {"type": "string", "maxLength": 255},
                "content_type": {"type": "string", "maxLength": 255},
            },
            "required": ["content"],
            "additionalProperties": False,
        },
    ],
}
_BYTES_SCHEMA: Schema = {"type": "string", "contentEncoding": "base64", "description": "The bytes, in base64."}


@dataclass(frozen=True, slots=True, eq=False)
class RequestBody:
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
        return _get_kind(self.media_type)

    def build_member_schema(self, name: str, schemas: OpenAPISchemas) -> Schema:
        """Build the schema of the argument for one member."""
        assert self.members is not None
        schema = self.members[name]
        if name not in self.files:
            return schemas.translate(schema)
        is_list = isinstance(schema, Mapping) and schema.get("type") == "array"
        about = {"description": schema["description"]} if isinstance(schema.get("description"), str) else {}
        return (
            {"type": "array", "items": FILE_SCHEMA, **about}
            if is_list
            else {**FILE_SCHEMA, **_prepend_description(about)}
        )

    def build_schema(self, schemas: OpenAPISchemas) -> Schema:
        """Build the schema of a body that is one argument."""
        if self.kind == "bytes":
            return dict(_BYTES_SCHEMA)
        if self.kind == "text":
            return {"type": "string", "description": f"The body, as {self.media_type}."}
        schema = schemas.translate(self.schema)
        return (
            {**schema, "description": self.description} if self.description and "description" not in schema else schema
        )

    def encode(self, value: Any) -> RequestContent:
        """Encode a value as the body. Raises ArgumentError for invalid base64."""
        content_type = self.media_type if "*" not in self.media_type else ""
        match self.kind:
            case "json":
                return RequestContent(jsonrpc.dumps(value), content_type or JSON_MEDIA_TYPE)
            case "bytes":
                return RequestContent(_decode_bytes(value, "body"), content_type or BINARY_MEDIA_TYPE)
            case "text":
                content_type = content_type or "text/plain"
                charset = "" if "charset" in content_type else "; charset=utf-8"
                return RequestContent(str(value).encode(), f"{content_type}{charset}")

        if not isinstance(value, Mapping):
            raise ArgumentValueError("body", "must be an object, because it is encoded as a form")
        if self.kind == "form":
            pairs = [
                pair for name, item in value.items() for pair in self._build_form_parameter(name).encode_pairs(item)
            ]
            return RequestContent("&".join(f"{name}={text}" for name, text in pairs).encode(), FORM_MEDIA_TYPE)

        return encode_multipart(part for name, item in value.items() for part in self._iter_parts(name, item))

    def _build_form_parameter(self, name: str) -> OperationParameter:
        """Build the parameter that encodes a form member (Encoding Object)."""
        encoding = self.encoding.get(name)
        encoding = encoding if isinstance(encoding, Mapping) else {}
        style = encoding.get("style", "form")
        explode = encoding.get("explode")
        is_json = str(encoding.get("contentType", "")).partition(";")[0].strip().lower().endswith("json")
        return OperationParameter(
            name=name,
            place="query",
            schema={},
            style=style if style in ("form", "spaceDelimited", "pipeDelimited", "deepObject") else "form",
            explode=explode if isinstance(explode, bool) else style == "form",
            is_json=is_json and "style" not in encoding,
        )

    def _iter_parts(self, name: str, value: Any) -> Iterator[tuple[str, FormPart]]:
        """Yield the parts of a multipart form for one member."""
        if isinstance(value, list):
            for item in value:
                yield from self._iter_parts(name, item)
            return
        encoding = self.encoding.get(name)
        declared_type = str(encoding.get("contentType", "")) if isinstance(encoding, Mapping) else ""
        declared_type = "" if "," in declared_type or "*" in declared_type else remove_unprintable(declared_type)

        if name in self.files and value is not None:
            file = value if isinstance(value, Mapping) else {"content": value}
            filename = str(file.get("name") or f"{name}{mimetypes.guess_extension(declared_type) or ''}")
            yield name, decode_file(file, _decode_bytes(file.get("content"), name), filename, declared_type)
        elif isinstance(value, Mapping):
            yield name, FormPart(jsonrpc.dumps(value), declared_type or JSON_MEDIA_TYPE)
        else:
            yield name, FormPart(to_text(value).encode(), declared_type)


def read_body(entry: Any, references: References, label: str) -> RequestBody | None:
    """Read a Request Body Object; None without a body. Raises DeclarationError."""
    if entry is None:
        return None

    definition = references.resolve(entry, label)
    contents = definition.get("content")
    if not isinstance(contents, Mapping) or not contents:
        return None

    media_type = min(contents, key=lambda name: (_KIND_ORDER.index(_get_kind(name)), list(contents).index(name)))
    chosen = contents[media_type] if isinstance(contents[media_type], Mapping) else {}
    encoding, description = chosen.get("encoding"), definition.get("description")
    body = RequestBody(
        media_type=remove_unprintable(media_type.strip()),
        schema=chosen.get("schema", {}),
        encoding=encoding if isinstance(encoding, Mapping) else {},
        is_required=definition.get("required") is True,
        description=description if isinstance(description, str) else "",
    )
    parts = (
        _collect_object_schemas(body.schema, references, label) if body.kind in ("json", "form", "multipart") else None
    )
    if parts is None:
        return body

    members = {name: inner for part in parts for name, inner in part.get("properties", {}).items()}
    required = [name for part in parts for name in _filter_names(part.get("required"))]
    files = [
        name
        for name, inner in members.items()
        if body.kind == "multipart" and _is_file_schema(inner, references, label)
    ]
    resolved = {name: references.resolve(members[name], label) for name in files}
    return replace(
        body, members={**members, **resolved}, required=tuple(dict.fromkeys(required)), files=frozenset(files)
    )


_KIND_ORDER = ("json", "multipart", "form", "text", "bytes")


def _get_kind(media_type: str) -> str:
    plain = media_type.partition(";")[0].strip().lower()
    if includes_json(plain):
        return "json"
    if plain == MULTIPART_MEDIA_TYPE:
        return "multipart"
    if plain == FORM_MEDIA_TYPE:
        return "form"
    return "text" if plain.startswith("text/") or plain in _TEXT_TYPES or plain.endswith("+xml") else "bytes"


def _collect_object_schemas(
    schema: Any, references: References, label: str, depth: int = 0
) -> list[dict[str, Any]] | None:
    """Collect the schemas that define an object's members; None if other rules apply."""
    if not isinstance(schema, Mapping) or depth > 8:
        return None

    resolved = references.resolve(schema, label)
    if resolved.get("type", "object") != "object" or resolved.get("nullable") is True:
        return None

    extra = resolved.get("additionalProperties", False)
    if extra is not False or not _UNSPREADABLE_KEYWORDS.isdisjoint(resolved):
        return None

    parts: list[dict[str, Any]] = []
    for inner in resolved.get("allOf", ()) if isinstance(resolved.get("allOf"), list) else ():
        more = _collect_object_schemas(inner, references, label, depth + 1)
        if more is None:
            return None
        parts += more

    if isinstance(resolved.get("properties"), Mapping):
        parts.append(resolved)
    elif isinstance(resolved.get("required"), list):
        parts.append({"properties": {}, "required": resolved["required"]})

    return parts if any(part["properties"] for part in parts) else None


_UNSPREADABLE_KEYWORDS = frozenset(
    {"oneOf", "anyOf", "not", "if", "patternProperties", "minProperties", "maxProperties", "enum"}
)
_UNSPREADABLE_KEYWORDS |= {"propertyNames", "dependentSchemas", "dependentRequired", "discriminator", "const"}


def _filter_names(value: Any) -> list[str]:
    return [name for name in value if isinstance(name, str)] if isinstance(value, list) else []


def _is_file_schema(schema: Any, references: References, where: str) -> bool:
    """Return True for bytes, or a list of them (OpenAPI, File Uploads)."""
    resolved = references.resolve(schema, where) if isinstance(schema, Mapping) else {}
    if resolved.get("type") == "array" and isinstance(resolved.get("items"), Mapping):
        resolved = references.resolve(resolved["items"], where)
    media_type = resolved.get("contentMediaType")
    by_type = isinstance(media_type, str) and "contentEncoding" not in resolved and not media_type.startswith("text/")
    return resolved.get("type", "string") == "string" and (resolved.get("format") == "binary" or by_type)


def _prepend_description(about: Schema) -> Schema:
    description = about.get("description")
    return {"description": f"{description} {FILE_SCHEMA['description']}"} if description else {}


def _decode_bytes(value: Any, name: str) -> bytes:
    if not isinstance(value, str) or len(value) > MAX_FILE_BYTES * 4 // 3 + 4:
        raise ArgumentValueError(name, f"must be base64 of {MAX_FILE_BYTES // 1024 // 1024} MiB at most")
    return decode_base64(value, name)
