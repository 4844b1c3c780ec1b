"""URI templates: the subset of RFC 6570 for resources, in both directions.

    {x}      one path segment or a part of one; never crosses "/"
    {+x}     text that may span segments, like "a/b/c"
    {x*}     the same span as a list of segments, like ["a", "b", "c"]
    {?a,b}   query variables at the end, in any order, each optional

Characters outside ASCII are percent-encoded (RFC 3987, section 3.1), in names of variables too (RFC 6570, section 2.3).

Matching takes linear time: a template is matched segment by segment, without backtracking. Values are percent-decoded
exactly once. A value with a ".." segment never matches, nor does {x} with a decoded "/".

RFC 6570 joins the list of {x*} by commas. Here "/" joins it, the common meaning among servers.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple
from urllib.parse import quote, unquote, unquote_to_bytes

MAX_URI_LENGTH = 8192
"""Maximum length of a matched URI, in characters."""

Value = str | list[str]

_EXPRESSION = re.compile(r"\{([^{}]*)\}")
_NAME = re.compile(r"(?:[A-Za-z_]|%[0-9A-Fa-f]{2})(?:[A-Za-z0-9_]|%[0-9A-Fa-f]{2})*")
_NON_ASCII = re.compile(r"[^\x00-\x7F]+")
_PLAIN = r"[A-Za-z0-9\-._~:/?#\[\]@!$&'()*+,;=]*"
_ENCODED = re.compile(rf"{_PLAIN}(?:%[0-9A-Fa-f]{{2}}{_PLAIN})*")
_RESERVED = ":/?#[]@!$&'()*+,;="
_FORMS = "{x}, {+x}, {x*} and {?a,b}"
_IGNORED_BY_BROWSERS = re.compile(r"^[\x00-\x20]+|[\t\n\r]")
_SCRIPT_SCHEMES = frozenset({"javascript", "vbscript", "livescript", "mocha", "blob", "filesystem", "view-source"})
_PASSIVE_DATA = re.compile(r"image/(?!svg)|audio/|video/|text/plain|[;,]")
"""Beginnings of the media types in `data:` that browsers show and do not run."""


def is_script_uri(uri: str) -> bool:
    """Return True for a URI that a browser runs, or opens as a page of its own making.

    The scheme is read as browsers read it (WHATWG URL): without leading spaces, tabs and line breaks, in any case.
    """
    scheme, _, rest = _IGNORED_BY_BROWSERS.sub("", uri).partition(":")
    if scheme.lower() != "data":
        return scheme.lower() in _SCRIPT_SCHEMES
    return _PASSIVE_DATA.match(rest.lstrip().lower()) is None


def quote_non_ascii(text: str) -> str:
    """Percent-encode the characters outside ASCII of a URI or a URI template, as UTF-8."""
    return text if text.isascii() else _NON_ASCII.sub(lambda found: quote(found[0]), text)


def quote_path(path: str) -> str:
    """Encode a path; characters that are allowed in paths stay (RFC 3986, section 3.3)."""
    return quote(path, safe="/!$&'()*+,;=:@~")


class _Segment(NamedTuple):
    """Part between two slashes: literals and variables, or one spanning variable."""

    literals: tuple[str, ...]
    """The literals around the names, one more than the names."""
    names: tuple[str, ...]
    span: str
    """``+`` or ``*`` if the name spans segments, else empty."""
    guarded: str
    """Characters that separate the variables. They are encoded inside values."""


class UriTemplate:
    """A URI template, or a plain URI (`is_static`).

    Raises:
        ValueError: the template is malformed or ambiguous; the message names the part.
    """

    __slots__ = ("_prefix", "_query", "_segments", "_span", "is_static", "text", "variables")

    def __init__(self, text: str) -> None:
        text = self.text = quote_non_ascii(text)
        if len(text) > MAX_URI_LENGTH:
            raise ValueError(f"URI template is longer than {MAX_URI_LENGTH} characters")

        path, query = _split_query(text)
        self._query: tuple[str, ...] = query
        self._segments = tuple(_segment(text, part) for part in path.split("/"))

        spans = [index for index, segment in enumerate(self._segments) if segment.span]
        if len(spans) > 1:
            raise ValueError(f"URI template {text!r}: only one variable may span segments")
        self._span: int | None = spans[0] if spans else None
        self._prefix = path.split("{", 1)[0]
        self.variables: tuple[str, ...] = (*(name for segment in self._segments for name in segment.names), *query)
        """Names in order, those of the query last."""

        if len(set(self.variables)) != len(self.variables):
            raise ValueError(f"URI template {text!r}: a variable occurs twice")
        if query and "?" in path:
            raise ValueError(f"URI template {text!r}: a literal '?' cannot come before {{?…}}")

        self.is_static: bool = not self.variables
        """True if the template matches exactly one URI."""

    @property
    def query_variables(self) -> tuple[str, ...]:
        """Names of the variables of the query, each of which may be absent."""
        return self._query

    def __repr__(self) -> str:
        return f"UriTemplate({self.text!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, UriTemplate) and other.text == self.text

    def __hash__(self) -> int:
        return hash(self.text)

    def prepend(self, prefix: str) -> UriTemplate:
        """Return the template for the same URIs after a prefix, such as "shop+"."""
        return UriTemplate(f"{prefix}{self.text}")

    def match(self, uri: str) -> dict[str, Value] | None:
        """Return the variables of `uri`: text, or a list for ``{x*}``.

        Absent query variables are left out. Returns None for a URI that does not match, is malformed or too long, or
        has a path traversal in a value.
        """
        if not uri.startswith(self._prefix) or len(uri) > MAX_URI_LENGTH:
            return None
        if self.is_static:
            return {} if uri == self.text else None
        if not _ENCODED.fullmatch(uri):
            return None

        found: dict[str, Value] = {}
        if self._query:
            uri, mark, query = uri.partition("?")
            if mark and not _match_query(query, self._query, found):
                return None

        return found if self._match_path(uri.split("/"), found) else None

    def _match_path(self, parts: list[str], found: dict[str, Value]) -> bool:
        segments, at = self._segments, self._span
        if at is not None:
            end = len(parts) - (len(segments) - at - 1)
            if end <= at or not _match_span("/".join(parts[at:end]), segments[at], found):
                return False
            parts = [*parts[:at], *parts[end:]]
            segments = segments[:at] + segments[at + 1 :]

        return len(parts) == len(segments) and all(
            _match_segment(part, segment, found) for part, segment in zip(parts, segments, strict=True)
        )

    def expand(self, values: Mapping[str, str | Sequence[str]]) -> str:
        """Return the URI for `values`, the inverse of ``match``.

        Query variables may be absent.

        Raises:
            ValueError: a variable is missing, unknown, empty, or has an invalid value, like "/" for ``{x}``.
        """
        unknown = values.keys() - set(self.variables)
        if unknown:
            raise ValueError(f"URI template {self.text!r} has no variable {', '.join(sorted(unknown))}")
        path = "/".join(self._expand(segment, values) for segment in self._segments)
        given = [(name, _text(name, values[name])) for name in self._query if name in values]
        query = "&".join(f"{quote(name)}={quote(value, safe='')}" for name, value in given)
        uri = f"{path}?{query}" if query else path
        if len(uri) > MAX_URI_LENGTH:
            raise ValueError(f"the URI would be longer than {MAX_URI_LENGTH} characters")
        return uri

    def build_example(self) -> str:
        """Return a URI of the template, with two segments for a variable that spans them."""
        names = ((name, segment.span) for segment in self._segments for name in segment.names)
        return self.expand({name: "x/x" if span else "x" for name, span in names})

    def _expand(self, segment: _Segment, values: Mapping[str, str | Sequence[str]]) -> str:
        written = [segment.literals[0]]
        for name, literal in zip(segment.names, segment.literals[1:], strict=True):
            if name not in values:
                raise ValueError(f"URI template {self.text!r} needs a value for {name}")
            written += (self._encode(segment, name, values[name]), literal)
        return "".join(written)

    def _encode(self, segment: _Segment, name: str, value: str | Sequence[str]) -> str:
        if segment.span == "*":
            parts = value.split("/") if isinstance(value, str) else list(value)
            if not parts or not all(parts) or any("/" in part for part in parts) or not _is_safe("/".join(parts)):
                raise ValueError(f"{name}: segments must not be empty or '..', or hold '/' or NUL")
            return "/".join(quote(part, safe="") for part in parts)

        text = _text(name, value)
        if not text or not _is_safe(text) or (not segment.span and "/" in text):
            raise ValueError(
                f"{name}: {text!r} is empty, or holds '/', '..' or NUL where the template does not allow it"
            )

        if segment.span:
            # A literal "?" would start the query.
            return quote(text, safe=_RESERVED.replace("?", "") if self._query else _RESERVED)

        encoded = quote(text, safe="")
        for separator in segment.guarded:
            encoded = encoded.replace(separator, f"%{ord(separator):02X}")
        return encoded


def _split_query(text: str) -> tuple[str, tuple[str, ...]]:
    path, mark, rest = text.partition("{?")
    if not mark:
        return text, ()
    names, closed, tail = rest.partition("}")
    if not closed or tail:
        raise ValueError(f"URI template {text!r}: {{?…}} must be closed and come last")
    decoded = tuple(map(_decode_name, names.split(",")))
    for name, variable in zip(names.split(","), decoded, strict=True):
        if variable is None:
            raise ValueError(f"URI template {text!r}: {name!r} is not a variable name")
    return path, tuple(filter(None, decoded))


def _decode_name(name: str) -> str | None:
    """Return the name of a variable without percent-encoding; None unless it can name a parameter."""
    if not _NAME.fullmatch(name):
        return None
    decoded = unquote(name, errors="replace")
    return decoded if decoded.isidentifier() else None


def _segment(text: str, part: str) -> _Segment:
    pieces = _EXPRESSION.split(part)
    literals, expressions = tuple(pieces[::2]), pieces[1::2]
    for literal in literals:
        if not _ENCODED.fullmatch(literal):
            raise ValueError(f"URI template {text!r}: {literal!r} must be percent-encoded, or its braces balanced")

    span, names = "", []
    for expression in expressions:
        name = expression.removeprefix("+")
        operator = "+" if name != expression else ""
        if not operator and name.endswith("*"):
            name, operator = name[:-1], "*"
        variable = _decode_name(name)
        if variable is None:
            raise ValueError(f"URI template {text!r}: {{{expression}}} is not one of {_FORMS}")
        span = span or operator
        names.append(variable)

    if span and len(names) > 1:
        raise ValueError(f"URI template {text!r}: a variable that spans segments needs a segment of its own")

    guarded = ""
    for literal in literals[1:-1]:
        mark = next((char for char in literal if not char.isalnum() and char != "%"), None)
        if mark is None:
            raise ValueError(f"URI template {text!r}: variables must be separated by a character like '-', '.' or '/'")
        guarded += mark
    return _Segment(literals, tuple(names), span, guarded)


def _match_segment(part: str, segment: _Segment, found: dict[str, Value]) -> bool:
    literals, names, _, _ = segment
    if not names:
        return part == literals[0]
    if not (part.startswith(literals[0]) and part.endswith(literals[-1])) or "?" in part or "#" in part:
        return False
    start, end = len(literals[0]), len(part) - len(literals[-1])
    # Match from the right, so that "{name}.{ext}" splits at the last dot. The rightmost split leaves the most room for
    # the other variables, so trying other splits is unnecessary.
    for index in range(len(names) - 1, 0, -1):
        cut = part.rfind(literals[index], start + 1, end - 1)
        if cut < 0 or not _take(names[index], part[cut + len(literals[index]) : end], found):
            return False
        end = cut
    return end > start and _take(names[0], part[start:end], found)


def _take(name: str, raw: str, found: dict[str, Value]) -> bool:
    value = _decoded(raw)
    if value is None or "/" in value or not _is_safe(value):
        return False
    found[name] = value
    return True


def _match_span(part: str, segment: _Segment, found: dict[str, Value]) -> bool:
    before, after = segment.literals
    if len(part) <= len(before) + len(after) or not (part.startswith(before) and part.endswith(after)):
        return False
    raw = part[len(before) : len(part) - len(after)]
    name = segment.names[0]
    if segment.span == "+":
        value = _decoded(raw)
        if value is None or not _is_safe(value):
            return False
        found[name] = value
        return True

    values: list[str] = []
    for piece in raw.split("/"):
        value = _decoded(piece)
        if not value or "/" in value or not _is_safe(value) or "?" in piece or "#" in piece:
            return False
        values.append(value)
    found[name] = values
    return True


def _match_query(query: str, names: tuple[str, ...], found: dict[str, Value]) -> bool:
    if "#" in query:
        return False
    for item in query.split("&") if query else ():
        quoted_name, _, raw = item.partition("=")
        name, value = _decoded(quoted_name), _decoded(raw)
        if name is None or name not in names or name in found or value is None or "\0" in value:
            return False
        found[name] = value
    return True


def _text(name: str, value: str | Sequence[str]) -> str:
    if not isinstance(value, str):
        raise ValueError(f"{name}: must be text, not {type(value).__name__}")
    if "\0" in value:
        raise ValueError(f"{name}: must not hold NUL")
    return value


def _is_safe(value: str) -> bool:
    """Return True without a NUL and without a ".." segment.

    A backslash counts as a slash, as on some file systems.
    """
    return "\0" not in value and (".." not in value or ".." not in value.replace("\\", "/").split("/"))


def _decoded(raw: str) -> str | None:
    if "%" not in raw:
        return raw
    try:
        return unquote_to_bytes(raw).decode()
    except UnicodeDecodeError:
        return None
