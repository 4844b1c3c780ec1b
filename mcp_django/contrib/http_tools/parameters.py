"""Parameters of requests, encoded for the path, query, headers and cookies in the styles of OpenAPI.

Source: OpenAPI, Parameter Object, Style Values; RFC 6570 for cases not covered there. A value can never leave its path
segment, its pair of the query, or its header. Values that cannot be encoded this way are rejected.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from mcp_django.contrib.http_tools.argument_layout import ArgumentValueError
from mcp_django.extensions.calls import jsonrpc
from mcp_django.extensions.errors import ArgumentError

Pairs = list[tuple[str, str]]
_RESERVED_CHARACTERS = ":/?@!$'()*,;[]"
"""Characters that `allowReserved` keeps; "&=#+%" would end or change a value."""
_COOKIE_CHARACTERS = "!#$&'()*+/:<=>?@[]^`{|}~"
_CONTROL = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")


@dataclass(frozen=True, slots=True)
class OperationParameter:
    """A parameter of an operation, in the path, the query, a header or a cookie."""

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
            raise ArgumentValueError(self.name, "control characters, such as line breaks, are not allowed in a header")
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
