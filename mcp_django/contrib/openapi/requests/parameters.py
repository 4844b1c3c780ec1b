"""Parameter encoding: path, query, headers and cookies in the styles of OpenAPI.

Source: OpenAPI, Parameter Object, Style Values; RFC 6570 for cases not covered there. A value can never leave its path
segment, its pair of the query, or its header. Values that cannot be encoded this way are rejected.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, unquote

from mcp_django.protocol import jsonrpc
from mcp_django.protocol.headers import TOKEN_PATTERN
from mcp_django.schema import ArgumentError, DeclarationError

Pairs = list[tuple[str, str]]
_STYLES = {
    "path": ("simple", "label", "matrix"),
    "query": ("form", "spaceDelimited", "pipeDelimited", "deepObject"),
    "header": ("simple",),
    "cookie": ("form",),
}
"""Styles of each place, the default first."""
_RESERVED_CHARACTERS = ":/?@!$'()*,;[]"
"""Characters that `allowReserved` keeps; "&=#+%" would end or change a value."""
_COOKIE_CHARACTERS = "!#$&'()*+/:<=>?@[]^`{|}~"
_PATH_CHARACTERS = "/:@!$&'()*+,;=~%"
_CONTROL = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")
_EXPRESSION = re.compile(r"\{([^{}]+)\}")
_FORBIDDEN_HEADERS = frozenset(
    {
        "accept",
        "accept-encoding",
        "authorization",
        "connection",
        "content-length",
        "content-type",
        "cookie",
        "expect",
        "forwarded",
        "host",
    }
    | {"keep-alive", "proxy-authorization", "proxy-connection", "set-cookie", "te", "trailer", "transfer-encoding"}
    | {"upgrade", "via", "x-real-ip", "x-client-ip", "client-ip", "true-client-ip", "cf-connecting-ip"}
    | {"x-cluster-client-ip", "remote-user", "x-remote-user", "x-host", "x-original-host"}
    | {"x-http-method", "x-http-method-override", "x-method-override", "x-original-url", "x-rewrite-url"}
)
_FORBIDDEN_HEADER_PREFIXES = ("x-forwarded", "x-auth-request-", "x-remote-", "x-authenticated-")
"""Headers that only the client or a gateway may set, in spite of the document."""


@dataclass(frozen=True, slots=True)
class OpenAPIParameter:
    """A parameter of an operation."""

    name: str
    place: str
    schema: Any
    """Schema as in the document."""
    is_required: bool = False
    style: str = "form"
    explode: bool = True
    allows_reserved: bool = False
    """True if characters with a meaning in URLs stay unencoded."""
    is_json: bool = False
    """True if the value is encoded as JSON."""
    description: str = ""
    is_deprecated: bool = False
    examples: tuple[Any, ...] = ()

    def encode_pairs(self, value: Any) -> Pairs:
        """Encode the pairs of a query, form or cookie. An empty list has none."""
        if self.is_json:
            return [(_encode(self.name), self._encode_value(_to_json(value)))]

        name = _encode(self.name)
        if isinstance(value, Mapping):
            if self.style == "deepObject":
                return [(f"{name}{key}", self._encode_value(text)) for key, text in _iter_deep_pairs(value)]
            if self.explode and self.style == "form":
                return [(_encode(key), self._encode_value(to_text(item))) for key, item in value.items()]
            return [(name, self._join([text for pair in value.items() for text in (pair[0], to_text(pair[1]))]))]
        if isinstance(value, list):
            if self.style == "deepObject":
                return [(f"{name}{key}", self._encode_value(text)) for key, text in _iter_deep_pairs({"": value})]
            if self.explode:
                return [(name, self._encode_value(to_text(item))) for item in value]
            return [(name, self._join([to_text(item) for item in value]))] if value else []

        return [(name, self._encode_value(to_text(value)))]

    def encode_segment(self, value: Any) -> str:
        """Encode the value of `{name}` in a path. Raises ArgumentError."""
        if self.is_json:
            return _encode(_to_json(value))

        name = _encode(self.name)
        prefix, between = {"label": (".", "."), "matrix": (";", ";")}.get(self.style, ("", ","))
        if isinstance(value, Mapping):
            if self.explode:
                items = [f"{_encode(key)}={_encode(to_text(item))}" for key, item in value.items()]
                return prefix + between.join(items) if items else ""
            items = [_encode(text) for pair in value.items() for text in (pair[0], to_text(pair[1]))]
        elif isinstance(value, list):
            items = [_encode(to_text(item)) for item in value]
            if self.explode and self.style == "matrix":
                items = [f"{name}={item}" for item in items]
            if self.explode:
                return prefix + between.join(items) if items else ""
        else:
            items = [_encode(to_text(value))]

        written = ",".join(items)
        return f";{name}={written}" if self.style == "matrix" else prefix + written

    def encode_header(self, value: Any) -> str:
        """Encode a header value. Raises ArgumentError for control characters."""
        if self.is_json:
            written = _to_json(value)
        elif isinstance(value, Mapping):
            glue = "=" if self.explode else ","
            written = ",".join(f"{key}{glue}{to_text(item)}" for key, item in value.items())
        elif isinstance(value, list):
            written = ",".join(map(to_text, value))
        else:
            written = to_text(value)
        if _CONTROL.search(written):
            raise ArgumentError(f"{self.name}: control characters, such as line breaks, are not allowed in a header")
        return written.strip()

    def _encode_value(self, text: str) -> str:
        if self.place == "cookie":
            return quote(text, safe=_COOKIE_CHARACTERS)
        return quote(text, safe=_RESERVED_CHARACTERS if self.allows_reserved else "")

    def _join(self, texts: list[str]) -> str:
        glue = {"spaceDelimited": "%20", "pipeDelimited": "%7C"}.get(self.style, ",")
        inner = (
            quote
            if not self.allows_reserved
            else lambda text, safe="": quote(text, safe=_RESERVED_CHARACTERS.replace(",", ""))
        )
        return glue.join(inner(text, safe="") for text in texts)


def read_parameter(entry: Mapping[str, Any], label: str) -> OpenAPIParameter | None:
    """Read a Parameter Object with resolved references; None for forbidden headers.

    Raises DeclarationError.
    """
    name, place = entry["name"], entry["in"]
    if place in ("header", "cookie") and not TOKEN_PATTERN.fullmatch(name):
        raise DeclarationError(f"{label}: {name[:60]!r} is an invalid name of a {place}")

    plain = name.lower().replace("_", "-")  # Servers treat both spellings as equal.
    if place == "header" and (plain in _FORBIDDEN_HEADERS or plain.startswith(_FORBIDDEN_HEADER_PREFIXES)):
        return None

    schema, is_json = entry.get("schema", {}), False
    content = entry.get("content")
    if isinstance(content, Mapping) and content:
        media_type, inner = next(iter(content.items()))
        schema = inner.get("schema", {}) if isinstance(inner, Mapping) else {}
        is_json = media_type.partition(";")[0].strip().lower().endswith(("/json", "+json"))

    styles = _STYLES[place]
    style = entry.get("style", styles[0])
    if style not in styles:
        raise DeclarationError(
            f"{label}: {name!r} in the {place} has the style {str(style)[:40]!r}, which is not allowed there"
        )

    explode = entry.get("explode")
    return OpenAPIParameter(
        name=name,
        place=place,
        schema=schema,
        is_required=place == "path" or entry.get("required") is True,
        style=style,
        explode=explode if isinstance(explode, bool) else style == "form",
        allows_reserved=entry.get("allowReserved") is True,
        is_json=is_json,
        description=entry["description"] if isinstance(entry.get("description"), str) else "",
        is_deprecated=entry.get("deprecated") is True,
        examples=_read_examples(entry),
    )


def _read_examples(entry: Mapping[str, Any]) -> tuple[Any, ...]:
    """Return the example values of a Parameter Object."""
    if "example" in entry:
        return (entry["example"],)
    named = entry.get("examples")
    found = named.values() if isinstance(named, Mapping) else ()
    return tuple(one["value"] for one in found if isinstance(one, Mapping) and "value" in one)


class PathTemplate:
    """The path template of an operation; its arguments cannot leave their segments."""

    def __init__(self, text: str, other_paths: Iterable[str] = ()) -> None:
        """Parse the path. Raises DeclarationError.

        `other_paths` are the paths of other operations with the same method.
        """
        if any(segment in (".", "..") for segment in unquote(text).split("/")):
            raise DeclarationError(f"{text!r} is an invalid path of an operation: it has a segment '.' or '..'")
        self.text = text
        self.names = _EXPRESSION.findall(text)
        self._segments = _encode_literals(text).split("/")
        self._rivals = [
            rival for other in other_paths if other != text and (rival := self._compile_rival(other)) is not None
        ]

    def fill(self, values: Mapping[str, str]) -> str:
        """Fill in encoded values. Raises ArgumentError if the result is another path."""
        for name in self.names:
            if not values.get(name):
                raise ArgumentError(f"{name}: must not be empty, because it is a part of the path")
        segments = [_EXPRESSION.sub(lambda match: values[match[1]], segment) for segment in self._segments]
        for segment, template in zip(segments, self._segments, strict=True):
            if segment != template and _is_traversal(segment):
                raise ArgumentError("A part of the path must not be '.' or '..', or contain one between slashes")
        if any(_matches_rival(segments, rival) for rival in self._rivals):
            raise ArgumentError("These values make the path of another operation")
        return "/".join(segments)

    def _compile_rival(self, other: str) -> list[str | None] | None:
        """Return the segments of a more concrete path, with None for its variables.

        Returns None for any other path (OpenAPI, Paths Object).
        """
        rival_segments = _encode_literals(other).split("/")
        if len(rival_segments) != len(self._segments):
            return None
        pairs = list(zip(self._segments, rival_segments, strict=True))
        if any("{" not in ours and "{" not in it and ours != it for ours, it in pairs):
            return None
        if not any("{" in ours and "{" not in it for ours, it in pairs):
            return None
        return [None if "{" in it else it for it in rival_segments]


def _encode_literals(path: str) -> str:
    """Encode the literal parts of a path, and keep its variables."""
    pieces = _EXPRESSION.split(path)
    return "".join(
        f"{{{piece}}}" if odd % 2 else quote(piece, safe=_PATH_CHARACTERS) for odd, piece in enumerate(pieces)
    )


def _matches_rival(segments: list[str], rival: list[str | None]) -> bool:
    return all(theirs is None or ours == theirs for ours, theirs in zip(segments, rival, strict=True))


def _is_traversal(segment: str) -> bool:
    """Return True if repeated decoding may turn the segment into "." or "..".

    A backslash counts as a slash. Some servers remove the text after ";" as a parameter.
    """
    plain = ""
    while segment != plain:
        plain, segment = segment, unquote(segment)
    return any(part.partition(";")[0] in (".", "..") for part in plain.replace("\\", "/").split("/"))


def _iter_deep_pairs(value: Any, path: str = "", depth: int = 0) -> Iterator[tuple[str, str]]:
    """Yield the pairs of `deepObject`: keys in brackets, lists as repeated keys."""
    if depth > 8:
        raise ArgumentError("nested too deeply for a query string")
    if isinstance(value, Mapping):
        for key, item in value.items():
            yield from _iter_deep_pairs(item, f"{path}%5B{_encode(key)}%5D" if key else path, depth + 1)
    elif isinstance(value, list):
        for item in value:
            if isinstance(item, Mapping | list):
                yield path, _to_json(item)
            else:
                yield path, to_text(item)
    else:
        yield path, to_text(value)


def _encode(text: str) -> str:
    return quote(text, safe="")


def to_text(value: Any) -> str:
    """Convert a single value to text; objects and lists become JSON."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if value is None:
        return ""
    if isinstance(value, float) and value.is_integer() and abs(value) < 2**53:
        return str(int(value))
    return _to_json(value) if isinstance(value, Mapping | list) else str(value)


def _to_json(value: Any) -> str:
    return jsonrpc.dumps(value).decode()
