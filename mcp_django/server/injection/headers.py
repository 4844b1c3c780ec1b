"""Parameters filled from request headers: `Annotated[str, Header("X-Tenant")]`."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin

from mcp_django.protocol.errors import ToolError
from mcp_django.protocol.headers import TOKEN_PATTERN
from mcp_django.schema import ArgumentError, DeclarationError, compile_text_reader

CREDENTIAL_HEADERS = frozenset({b"authorization", b"cookie", b"proxy-authorization"})
"""Headers that authenticate the caller; handlers never receive them."""
ABSENT: object = object()
"""Marker for a missing header whose parameter has a default."""


@dataclass(frozen=True, slots=True)
class Header:
    """Annotation for a parameter that is filled from a request header.

        def orders(tenant: Annotated[str, Header("X-Tenant")]): ...

    The name defaults to that of the parameter (`x_tenant` is X-Tenant). The text is converted to the annotated type. On
    a socket the headers are those of its handshake; stdio has no headers. A missing header leaves the default of the
    parameter; without a default the call fails and names the header.

    The parameter never appears in a schema. Headers are untrusted client input. The headers that authenticate the
    caller (Authorization, Cookie) are not available.
    """

    name: str | None = None


class HeaderReader:
    """Reader of the header for one parameter, with its type conversion."""

    __slots__ = ("_key", "_name", "_optional", "_read")

    def __init__(self, header: Header, parameter: str, annotation: object, *, optional: bool, where: str) -> None:
        """Compile a reader; raise DeclarationError for an invalid or forbidden name."""
        self._name = parameter.replace("_", "-").title() if header.name is None else header.name
        where = f"{where}: parameter '{parameter}'"
        if not TOKEN_PATTERN.fullmatch(self._name):
            raise DeclarationError(f"{where}: {self._name!r} is not a valid header name")
        self._key = self._name.lower()
        if self._key.encode("ascii") in CREDENTIAL_HEADERS:
            raise DeclarationError(
                f"{where}: {self._name} authenticates the caller and is not available to handlers; use Principal"
            )
        self._optional = optional
        self._read: Callable[[str], object] = compile_text_reader(_strip_header(annotation), where)

    def read(self, headers: Mapping[str, str]) -> Any:
        """Return the converted value, or ABSENT. Raises ToolError for an invalid header."""
        text = headers.get(self._key)
        if text is None:
            if self._optional:
                return ABSENT
            raise ToolError(f"The request must have the header {self._name}")
        try:
            return self._read(text)
        except ArgumentError as problem:
            raise ToolError(f"Invalid value of the header {self._name}: {problem}") from None


def _strip_header(annotation: object) -> object:
    origin = get_origin(annotation)
    if origin is Annotated:
        inner, *extras = get_args(annotation)
        remaining = [extra for extra in extras if not isinstance(extra, Header)]
        return Annotated[(inner, *remaining)] if remaining else inner
    if origin in (Union, UnionType):
        return Union[tuple(_strip_header(part) for part in get_args(annotation))]  # noqa: UP007
    return annotation
