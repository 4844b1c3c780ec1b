"""Injected parameters: detection by annotation, and the values that fill them."""

import inspect
import types
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

from mcp_django.server.injection.headers import ABSENT, Header, HeaderReader
from mcp_django.server.ports import ContextView, Principal, PrincipalType


@dataclass(frozen=True, slots=True)
class Depends:
    """Annotation for a parameter that is filled by the function `provide`.

        def orders(shop: Annotated[Shop, Depends(current_shop)]): ...

    The function may be async. It may take the Context, a Principal, headers and dependencies of its own. A generator
    function (or one under contextlib's `contextmanager` or `asynccontextmanager`) provides the yielded value; the rest
    of it runs when the handler has finished.

    Each function runs once per call and its value is shared. With `cache=False` it runs for this parameter alone. The
    parameter never appears in a schema.
    """

    provide: Callable[..., object]
    cache: bool = True


def get_injection(annotation: object) -> Any:
    """Return the injection for a parameter of this type; None if the client fills it.

    The result is ContextView, Principal, or a Depends or Header object. A Depends or Header given as the default of a
    parameter is returned unchanged.
    """
    if isinstance(annotation, Depends | Header):
        return annotation
    if get_origin(annotation) is Annotated:
        inner, *extras = get_args(annotation)
        return next((extra for extra in extras if isinstance(extra, Depends | Header)), None) or get_injection(inner)
    if get_origin(annotation) in (Union, types.UnionType):
        return next((found for part in get_args(annotation) if (found := get_injection(part)) is not None), None)
    if annotation is Principal or (isinstance(annotation, type) and issubclass(annotation, PrincipalType)):
        return Principal
    return ContextView if isinstance(annotation, type) and issubclass(annotation, ContextView) else None


def is_injected(annotation: object) -> bool:
    """Return True if the server fills parameters of this type."""
    return get_injection(annotation) is not None


def find_injected_parameters(fn: Callable[..., object]) -> dict[str, Any]:
    """Return the parameters of `fn` that the server fills, with their annotations."""
    return {
        name: hint
        for name, hint in get_type_hints(fn, include_extras=True).items()
        if name != "return" and is_injected(hint)
    }


class InjectedParameters:
    """Parameters of one function that the server fills, grouped by kind of value."""

    __slots__ = ("contexts", "depends", "headers", "principals")

    def __init__(self, fn: Callable[..., object], injected: Mapping[str, object], where: str) -> None:
        """Group the parameters; raise DeclarationError for an invalid header."""
        injections = {name: get_injection(annotation) for name, annotation in injected.items()}
        self.contexts = tuple(name for name, what in injections.items() if what is ContextView)
        self.principals = tuple(name for name, what in injections.items() if what is Principal)
        self.depends = tuple((name, what) for name, what in injections.items() if isinstance(what, Depends))
        self.headers = tuple(
            (name, HeaderReader(what, name, injected[name], optional=_has_default(fn, name), where=where))
            for name, what in injections.items()
            if isinstance(what, Header)
        )

    def fill(self, values: dict[str, Any], context: ContextView) -> None:
        """Add all values but the dependencies to `values` in place.

        Raises ToolError for a missing or invalid header.
        """
        for name in self.contexts:
            values[name] = context
        for name in self.principals:
            values[name] = context.principal
        headers = context.headers if self.headers else {}
        for name, reader in self.headers:
            value = reader.read(headers)
            if value is not ABSENT:
                values[name] = value


def _has_default(fn: Callable[..., object], name: str) -> bool:
    parameter = inspect.signature(fn).parameters.get(name)
    return (
        parameter is not None
        and parameter.default is not parameter.empty
        and not isinstance(parameter.default, Depends | Header)
    )
