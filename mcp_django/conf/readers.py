"""Readers of the `MCP` setting, which validate and convert a written value."""

import difflib
import math
import re
import types
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Annotated, Any, Union, get_args, get_origin

from mcp_django.protocol.types import Icon
from mcp_django.server.options import TRANSPORTS
from mcp_django.server.primitives.base import RATE_FORMAT, Rate

Reader = Callable[[Any], Any]
"""Function that converts a written value, or raises WrongValue."""

NAME_PREFIX_PATTERN = r"[A-Za-z0-9.-]+(?:_[A-Za-z0-9.-]+)*"
"""Pattern of name prefixes before "__". The name follows the first "__"."""
SCHEME_PREFIX_PATTERN = r"[A-Za-z][A-Za-z0-9.-]*"
"""Pattern of URI scheme prefixes before "+"."""
AUTH_NAMES = ("none", "token", "oauth", "external", "session")
ERAS = ("handshake", "stateless")
OBJECT_PERMISSIONS = ("all", "some")
ORM_STYLES = ("per_model", "generic")
LEVELS = ("debug", "info", "notice", "warning", "error", "critical", "alert", "emergency")

DOTTED_PATH_PATTERN = r"[^\W\d]\w*(\.[^\W\d]\w*)+"
SCOPE_PATTERN = r"[\x21\x23-\x5b\x5d-\x7e]+"  # RFC 6749, section 3.3
DOCUMENT_URL_PATTERN = r"https?://[A-Za-z0-9._\[\]:-]+([/?][!$-;=?-Z\[\]_a-z~]*)?"
"""Pattern of the URL of a document, which may have a query."""
ISSUER_URL_PATTERN = r"https?://[A-Za-z0-9._\[\]:-]+(/[!$-;=@-Z\[\]_a-z~]*)?"
"""Pattern of the URL of an issuer: without a query (RFC 8414, section 2)."""
ALIAS_PATTERN = r"[a-z][a-z0-9_-]{0,63}"


class WrongValue(ValueError):
    """An invalid value.

    The message follows the option's name; `suggestion` is the probable intention.
    """

    def __init__(self, message: str, suggestion: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.suggestion = suggestion


def find_closest(word: object, known: Iterable[str]) -> str | None:
    """Return the entry of `known` that is most similar to `word`, or None."""
    text = str(word)
    matches = difflib.get_close_matches(text.upper(), [name.upper() for name in known], n=1)
    return next((name for name in known if matches and name.upper() == matches[0]), None)


def flag(raw: Any) -> bool:
    if not isinstance(raw, bool):
        raise WrongValue("must be True or False")
    return raw


def matching(pattern: str, description: str) -> Reader:
    def read(raw: Any) -> str:
        if not isinstance(raw, str) or not re.fullmatch(pattern, raw, re.DOTALL):
            raise WrongValue(f"must be {description}")
        return raw

    return read


def integer(minimum: int, maximum: int | None = None) -> Reader:
    def read(raw: Any) -> int:
        if (
            isinstance(raw, bool)
            or not isinstance(raw, int)
            or raw < minimum
            or (maximum is not None and raw > maximum)
        ):
            raise WrongValue(f"must be a whole number of {minimum} " + (f"to {maximum}" if maximum else "or more"))
        return raw

    return read


def seconds(*, zero: bool = False) -> Reader:
    def read(raw: Any) -> float:
        number = isinstance(raw, int | float) and not isinstance(raw, bool) and math.isfinite(raw)
        if not number or raw < 0 or (raw == 0 and not zero):
            raise WrongValue(f"must be a number of seconds{'' if zero else ' above 0'}")
        return float(raw)

    return read


def optional(reader: Reader) -> Reader:
    return lambda raw: None if raw is None else reader(raw)


def tuple_of(reader: Reader) -> Reader:
    def read(raw: Any) -> tuple[Any, ...]:
        if isinstance(raw, str) or not isinstance(raw, Sequence):
            raise WrongValue("must be a list")
        return tuple(dict.fromkeys(reader(item) for item in raw))

    return read


def one_or_more(reader: Reader) -> Reader:
    """Return a reader of a list. It reads a single string as a list of one."""
    read = tuple_of(reader)
    return lambda raw: read([raw] if isinstance(raw, str) else raw)


def icon(raw: Any) -> Icon:
    if not isinstance(raw, str | Mapping | Icon):
        raise WrongValue("must be URLs, or dicts with a src")
    try:
        return Icon.of(raw.to_wire() if isinstance(raw, Icon) else raw)
    except ValueError as problem:
        raise WrongValue(f"has an invalid icon: {problem}") from None


def one_of(choices: Sequence[str]) -> Reader:
    def read(raw: Any) -> str:
        if raw not in choices:
            raise WrongValue(f"must be one of {', '.join(map(repr, choices))}", find_closest(raw, choices))
        return str(raw)

    return read


def nonempty_tuple_of(known: tuple[str, ...], noun: str) -> Reader:
    def read(raw: Any) -> tuple[str, ...]:
        named: tuple[str, ...] = tuple_of(one_of(known))(raw)
        if not named:
            raise WrongValue(f"must name at least one {noun}")
        return named

    return read


def number(raw: Any) -> float:
    if not isinstance(raw, int | float) or isinstance(raw, bool) or not math.isfinite(raw):
        raise WrongValue("must be a number")
    return float(raw)


def whole_number(raw: Any) -> int:
    if not isinstance(raw, int) or isinstance(raw, bool):
        raise WrongValue("must be a whole number")
    return raw


def find_reader(hint: Any, name: str) -> Reader:
    """Return the reader for an option of the type `hint`.

    It is the function in its `Annotated` type, or the default reader of the type.

    Raises:
        TypeError: the type has no reader; the message names the option.
    """
    if get_origin(hint) is Annotated:
        found = next((extra for extra in hint.__metadata__ if callable(extra)), None)
        return find_reader(get_args(hint)[0], name) if found is None else found
    if get_origin(hint) in (Union, types.UnionType):
        given = [part for part in get_args(hint) if part is not type(None)]
        if len(given) == 1:
            return optional(find_reader(given[0], name))
    known: dict[Any, Reader] = {
        bool: flag,
        int: whole_number,
        float: number,
        str: word,
        tuple[str, ...]: tuple_of(word),
    }
    if hint not in known:
        raise TypeError(f"{name} has the unsupported type {hint}; use Annotated with a reader function")
    return known[hint]


def mapping(raw: Any) -> Mapping[str, Any]:
    if not isinstance(raw, Mapping) or not all(isinstance(key, str) for key in raw):
        raise WrongValue("must be a dict with strings as keys")
    return MappingProxyType(dict(raw))


def auth(raw: Any) -> tuple[str, ...]:
    if raw is None:
        return ()
    names = raw if isinstance(raw, list | tuple) and raw else [raw]
    for name in names:
        if name not in AUTH_NAMES and not (isinstance(name, str) and re.fullmatch(DOTTED_PATH_PATTERN, name)):
            message = "must be None, 'none', 'token', 'oauth', 'external', 'session', a dotted path, or a list of them"
            raise WrongValue(message, find_closest(name, AUTH_NAMES))
    if "none" in names and len(names) > 1:
        raise WrongValue("must name 'none' alone or not at all")
    return tuple(dict.fromkeys(names))


def scope_names(raw: Any) -> tuple[str, ...]:
    found: tuple[str, ...] = tuple_of(scope)(raw)
    return tuple(sorted(found))


def scope_descriptions(raw: Any) -> Mapping[str, Any]:
    """Read a dict from scopes to their descriptions, which may be lazy strings."""
    if not isinstance(raw, Mapping) or not all(_is_scope(name) and str(text).strip() for name, text in raw.items()):
        raise WrongValue("must be a dict from scopes, each one word without quotes, to their descriptions")
    return MappingProxyType(dict(raw))


def implied_scopes(raw: Any) -> Mapping[str, tuple[str, ...]]:
    if not isinstance(raw, Mapping) or not all(_is_scope(name) for name in raw):
        raise WrongValue("must be a dict from scopes to lists of the scopes that they include")
    return MappingProxyType({name: scope_names(implied) for name, implied in raw.items()})


def function_path_or(function: Reader, other: Reader) -> Reader:
    """Return a reader that accepts a value, or the dotted path of a function.

    The function takes the request.
    """

    def read(raw: Any) -> Any:
        try:
            return function(raw) if isinstance(raw, str) and "://" not in raw and "." in raw else other(raw)
        except WrongValue as problem:
            message = f"{problem.message}, or the dotted path of a function of the request"
            raise WrongValue(message, problem.suggestion) from None

    return read


def rate(raw: Any) -> Rate:
    try:
        return raw if isinstance(raw, Rate) else Rate.parse(raw)
    except ValueError:
        raise WrongValue(f"must be {RATE_FORMAT}") from None


def _is_scope(name: Any) -> bool:
    return isinstance(name, str) and re.fullmatch(SCOPE_PATTERN, name) is not None


word = matching(r".*\S.*", "a string that is not empty")
dotted = matching(DOTTED_PATH_PATTERN, "a dotted path such as 'shop.mcp.Audit'")
object_permissions = matching(
    f"{'|'.join(OBJECT_PERMISSIONS)}|{DOTTED_PATH_PATTERN}",
    "'all', 'some', or the dotted path of a function such as 'shop.mcp.filter_rows'",
)
module = matching(r"[^\W\d]\w*(\.[^\W\d]\w*)*", "names of modules in apps, such as 'mcp_tools'")
origin = matching(r"[a-z][a-z0-9+.-]*://[^/\sA-Z?#]+", "origins such as 'https://app.example.com', without a path")
origin_url = matching(
    r"https?://([a-z0-9]([a-z0-9.-]*[a-z0-9])?|\[[0-9a-f:.]+\])(:[1-9][0-9]{0,4})?",
    "an origin such as 'https://example.com', without a path",
)
url = matching(r"https?://[^\s?#@\\]+", "a URL such as 'https://example.com/mcp'")
issuer_url = matching(ISSUER_URL_PATTERN, "URLs such as 'https://login.example.com'")
document_url = matching(DOCUMENT_URL_PATTERN, "a URL such as 'https://example.com/metadata?tenant=a'")
scope = matching(SCOPE_PATTERN, "scopes, which are words without quotes and backslashes")
path = matching(r"[^\s?#/]+(/[^\s?#/]+)*", "a URL path such as 'mcp', without a slash at either end")

Flag = Annotated[bool, flag]
Text = Annotated[str, word]
OptionalText = Annotated[str | None, optional(word)]
Count = Annotated[int, integer(1)]
Seconds = Annotated[float, seconds()]
SecondsOrZero = Annotated[float, seconds(zero=True)]
DottedPaths = Annotated[tuple[str, ...], tuple_of(dotted)]
Origins = Annotated[tuple[str, ...], tuple_of(origin)]
URLPath = Annotated[str, path]
Modules = Annotated[tuple[str, ...], tuple_of(module)]
OptionalDotted = Annotated[str | None, optional(dotted)]
ObjectPermissions = Annotated[str | None, optional(object_permissions)]
OptionalCount = Annotated[int | None, optional(integer(1))]
OptionalSeconds = Annotated[float | None, optional(seconds())]
OptionalLevel = Annotated[str | None, optional(one_of(LEVELS))]
Eras = Annotated[tuple[str, ...], nonempty_tuple_of(ERAS, "era")]
Transports = Annotated[tuple[str, ...], nonempty_tuple_of(TRANSPORTS, "transport")]
OrmStyle = Annotated[str, one_of(ORM_STYLES)]
OptionalOrmStyle = Annotated[str | None, optional(one_of(ORM_STYLES))]
Auth = Annotated[tuple[str, ...], auth]
Entries = Annotated[Mapping[str, Any], mapping]
Icons = Annotated[tuple[Icon, ...], tuple_of(icon)]
OptionalOrigin = Annotated[str | None, optional(origin_url)]
OptionalURL = Annotated[str | None, optional(url)]
OptionalAlias = Annotated[str | None, optional(word)]
ScopeDescriptions = Annotated[Mapping[str, Any], scope_descriptions]
ImpliedScopes = Annotated[Mapping[str, tuple[str, ...]], implied_scopes]
Scopes = Annotated[tuple[str, ...], scope_names]
ScopesOrFunction = Annotated[tuple[str, ...] | str, function_path_or(dotted, scope_names)]
URLsOrFunction = Annotated[tuple[str, ...] | str | None, optional(function_path_or(dotted, tuple_of(issuer_url)))]
URLOrFunction = Annotated[str | None, optional(function_path_or(dotted, document_url))]
OptionalRate = Annotated[Rate | None, optional(rate)]
