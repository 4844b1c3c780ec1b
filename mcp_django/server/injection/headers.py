"""Parameters that are filled from the headers of the request: `Annotated[str, Header("X-Tenant")]`."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from types import UnionType
from typing import TYPE_CHECKING, Annotated, Any, Union, get_args, get_origin

from mcp_django.protocol.errors import ToolError
from mcp_django.schema import ArgumentError, DeclarationError, text_reader
from mcp_django.server.calls.call import CREDENTIALS

if TYPE_CHECKING:
    from mcp_django.server.calls.call import Call

_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
"""A field name (RFC 9110, 5.6.2)."""
ABSENT: Any = object()
"""The header is not there, and the parameter has a default."""


@dataclass(frozen=True, slots=True)
class Header:
    """`Annotated[str, Header("X-Tenant")]`: the parameter is filled from a header of the request.

    Without a name it is the parameter's (`x_tenant` is X-Tenant). The text is converted to the annotated type. On a
    socket the headers are those of its handshake; on stdio there are none. A header that is not there leaves the
    parameter's default; without one the call fails, and says which. It never shows in a schema. Headers come from the
    client: they prove nothing, and those that prove who asks (Authorization, Cookie) cannot be had.
    """

    name: str | None = None


class HeaderReader:
    """What fills one parameter."""

    __slots__ = ("_key", "_name", "_optional", "_read")

    def __init__(self, header: Header, parameter: str, annotation: Any, *, optional: bool, where: str) -> None:
        """Raises DeclarationError."""
        self._name = parameter.replace("_", "-").title() if header.name is None else header.name
        where = f"{where}: parameter '{parameter}'"
        if not _TOKEN.fullmatch(self._name):
            raise DeclarationError(f"{where}: {self._name!r} is no name of a header")
        self._key = self._name.lower().encode("ascii")
        if self._key in CREDENTIALS:
            raise DeclarationError(
                f"{where}: {self._name} proves who asks, and is not given to handlers; use Principal"
            )
        self._optional = optional
        self._read: Callable[[str], Any] = text_reader(_without_header(annotation), where)

    def value(self, call: "Call") -> Any:
        """The value, or ABSENT. Raises ToolError."""
        headers = call.connection.headers
        raw = None if headers is None else headers.get(self._key)
        if raw is None:
            if self._optional:
                return ABSENT
            raise ToolError(f"The request must have the header {self._name}")
        try:
            return self._read(raw.decode("latin-1"))
        except ArgumentError as problem:
            raise ToolError(f"The header {self._name} does not fit: {problem}") from None


def _without_header(annotation: Any) -> Any:
    origin = get_origin(annotation)
    if origin is Annotated:
        inner, *extras = get_args(annotation)
        kept = [extra for extra in extras if not isinstance(extra, Header)]
        return Annotated[(inner, *kept)] if kept else inner
    if origin in (Union, UnionType):
        return Union[tuple(_without_header(part) for part in get_args(annotation))]  # noqa: UP007
    return annotation
