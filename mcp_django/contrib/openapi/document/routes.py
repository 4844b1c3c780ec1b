"""Routes: rules that expose, rename or exclude operations."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from mcp_django.contrib.http_tools.tools import HTTP_METHODS
from mcp_django.contrib.openapi.document.operations import OpenAPIOperation
from mcp_django.extensions.errors import DeclarationError
from mcp_django.extensions.primitives import Permission
from mcp_django.types import ToolAnnotations

_PATTERN = re.compile(r"(?:(?P<methods>[A-Za-z]+(?:,[A-Za-z]+)*|\*)\s+)?(?P<path>[/*]\S*)")


@dataclass(frozen=True, slots=True)
class Route:
    """A rule for operations. The first matching route decides; the default is a tool.

    `pattern` is a method (several: "PUT,PATCH"; any: "*") and a path in which `*` matches any text. Examples are
    "GET /pets/{id}" and "* /admin/*". A path alone matches any method. `tags` and `operation_id` (which may contain
    `*`) narrow it: the operation must have one of the tags.

    `expose` is "tool", "resource" (for GET without a body), or None to exclude the operation. `deprecated` selects if
    this rule exposes deprecated operations. The other options are those of `@tool`, and replace values of the document.
    `permission` and `scopes` are required in addition to those of the toolset. `uri` is the URI or template of a
    resource.
    """

    pattern: str = "*"
    expose: Literal["tool", "resource"] | None = "tool"
    tags: Sequence[str] = ()
    operation_id: str = ""
    name: str | None = None
    title: str | None = None
    description: str | None = None
    annotations: ToolAnnotations | Mapping[str, Any] | None = None
    permission: Permission | None = None
    scopes: Sequence[str] = ()
    timeout: float | None = None
    deprecated: bool | None = None
    uri: str | None = None
    _methods: frozenset[str] = field(init=False, repr=False, compare=False)
    _path: re.Pattern[str] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Validate the rule. Raises DeclarationError."""
        found = _PATTERN.fullmatch(str(self.pattern).strip())
        if found is None:
            raise DeclarationError(
                f"Route({self.pattern!r}): a pattern is a method and a path, such as 'GET /pets/{{id}}' or '* /admin/*'"
            )

        methods = (found["methods"] or "*").upper().split(",")
        for method in methods:
            if method != "*" and method.lower() not in HTTP_METHODS:
                raise DeclarationError(
                    f"{self}: the method {method} is unknown; use {', '.join(HTTP_METHODS).upper()} or *"
                )

        for name in ("tags", "scopes"):
            if isinstance(getattr(self, name), str):
                raise DeclarationError(f"{self}: {name} is a list; write {name}=[{getattr(self, name)!r}]")

        if self.expose not in ("tool", "resource", None):
            raise DeclarationError(f"{self}: expose is 'tool', 'resource' or None, not {self.expose!r}")
        if self.uri is not None and self.expose != "resource":
            raise DeclarationError(f"{self}: only a resource has a URI; set expose='resource'")

        object.__setattr__(self, "_methods", frozenset(methods))
        object.__setattr__(self, "_path", _compile_glob(found["path"]))

    def __str__(self) -> str:
        return f"Route({self.pattern!r})"

    def matches(self, operation: OpenAPIOperation) -> bool:
        """Return True if the rule matches the operation."""
        if "*" not in self._methods and operation.method not in self._methods:
            return False
        if self.tags and not set(self.tags) & set(operation.tags):
            return False
        if self.operation_id and not _compile_glob(self.operation_id).fullmatch(operation.id):
            return False
        return self._path.fullmatch(operation.path) is not None


def select_operations(
    operations: Sequence[OpenAPIOperation], routes: Iterable[Route], label: str, *, include_deprecated: bool = False
) -> list[tuple[OpenAPIOperation, Route]]:
    """Return the exposed operations with their routes.

    A deprecated operation is included if its route, or `include_deprecated`, permits it.

    Raises DeclarationError for a route without a match, because a misspelt one might have excluded an operation.
    """
    routes = list(routes)
    for route in routes:
        if not isinstance(route, Route):
            raise DeclarationError(f"{label}: routes is a list of Route, not of {type(route).__name__}")
        if not any(route.matches(operation) for operation in operations):
            raise DeclarationError(f"{label}: {route} matches no operation of the document")
    pairs = [(operation, _find_route(operation, routes)) for operation in operations]
    return [
        (operation, route)
        for operation, route in pairs
        if route.expose is not None
        and (not operation.is_deprecated or (include_deprecated if route.deprecated is None else route.deprecated))
    ]


def _find_route(operation: OpenAPIOperation, routes: Sequence[Route]) -> Route:
    return next((route for route in routes if route.matches(operation)), DEFAULT_ROUTE)


def _compile_glob(pattern: str) -> re.Pattern[str]:
    return re.compile(".*".join(re.escape(piece) for piece in re.split(r"\*+", pattern)), re.DOTALL)


DEFAULT_ROUTE = Route()
"""Route of operations without a matching rule."""
