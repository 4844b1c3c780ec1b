"""Parameters of a document: Parameter Objects, and paths with variables."""

import functools
import re
from collections.abc import Iterable, Mapping
from typing import Any
from urllib.parse import quote, unquote

from mcp_django.contrib.http_tools.argument_layout import ArgumentValueError
from mcp_django.contrib.http_tools.parameters import OperationParameter
from mcp_django.extensions.errors import ArgumentError, DeclarationError
from mcp_django.protocol.headers import TOKEN_PATTERN

_STYLES = {
    "path": ("simple", "label", "matrix"),
    "query": ("form", "spaceDelimited", "pipeDelimited", "deepObject"),
    "header": ("simple",),
    "cookie": ("form",),
}
"""Styles of each place, the default first."""
MAX_CACHED_PATHS = 8192
"""Paths with cached segments: each path is compared with all others of its document."""
_PATH_CHARACTERS = "/:@!$&'()*+,;=~%"
_EXPRESSION = re.compile(r"\{([^{}]+)\}")
_FORBIDDEN_HEADERS = frozenset(
    {"accept", "accept-encoding", "authorization", "connection", "content-length", "content-type", "cookie", "expect"}
    | {"forwarded", "host", "keep-alive", "proxy-authorization", "proxy-connection", "set-cookie", "te", "trailer"}
    | {"transfer-encoding", "upgrade", "via", "x-real-ip", "x-client-ip", "client-ip", "true-client-ip"}
    | {"cf-connecting-ip", "x-cluster-client-ip", "remote-user", "x-remote-user", "x-host", "x-original-host"}
    | {"x-http-method", "x-http-method-override", "x-method-override", "x-original-url", "x-rewrite-url"}
)
_FORBIDDEN_HEADER_PREFIXES = ("x-forwarded", "x-auth-request-", "x-remote-", "x-authenticated-")
"""Headers that only the client or a gateway may set, in spite of the document."""


def read_parameter(entry: Mapping[str, Any], label: str) -> OperationParameter | None:
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
    return OperationParameter(
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
        self._segments = _split_path(text)
        self._rivals = [
            rival for other in other_paths if other != text and (rival := self._compile_rival(other)) is not None
        ]

    def fill(self, values: Mapping[str, str]) -> str:
        """Fill in encoded values. Raises ArgumentError if the result is another path."""
        for name in self.names:
            if not values.get(name):
                raise ArgumentValueError(name, "must not be empty, because it is a part of the path")
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
        rival_segments = _split_path(other)
        if len(rival_segments) != len(self._segments):
            return None
        pairs = list(zip(self._segments, rival_segments, strict=True))
        if any("{" not in ours and "{" not in it and ours != it for ours, it in pairs):
            return None
        if not any("{" in ours and "{" not in it for ours, it in pairs):
            return None
        return [None if "{" in it else it for it in rival_segments]


@functools.lru_cache(maxsize=MAX_CACHED_PATHS)
def _split_path(path: str) -> tuple[str, ...]:
    """Split a path into segments with encoded literal parts; its variables stay."""
    pieces = _EXPRESSION.split(path)
    encoded = "".join(
        f"{{{piece}}}" if odd % 2 else quote(piece, safe=_PATH_CHARACTERS) for odd, piece in enumerate(pieces)
    )
    return tuple(encoded.split("/"))


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
