"""Operations of a document: methods at paths, with their definitions."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any

from mcp_django.contrib.http_tools.tools import HTTP_METHODS
from mcp_django.contrib.openapi.document.document import OpenAPIDocument
from mcp_django.contrib.openapi.document.references import References
from mcp_django.extensions.errors import DeclarationError

CollectErrors = Callable[[str], AbstractContextManager[None]]
"""Function of a source that returns a context which takes the errors of declarations."""
MAX_OPERATIONS = 5000
MAX_PARAMETERS = 2000
"""Maximum parameters of an operation. Tools group the rarer ones, see `http_tools.argument_layout`."""


@dataclass(frozen=True, slots=True, eq=False)
class OpenAPIOperation:
    """A method at a path."""

    method: str
    """HTTP method in upper case."""
    path: str
    """Path as in the document: "/pets/{id}"."""
    definition: Mapping[str, Any]
    """Operation Object of the document."""
    path_parameters: Sequence[Any] = ()
    """Parameters defined at the path."""
    servers: Sequence[Any] = ()
    """Servers of the operation or its path; empty to use those of the document."""
    id: str = ""
    summary: str = ""
    description: str = ""
    tags: tuple[str, ...] = ()
    is_deprecated: bool = False
    security: Sequence[Any] = field(default_factory=tuple)

    def __str__(self) -> str:
        return f"{self.method} {self.path}"


def iter_operations(
    document: OpenAPIDocument, references: References, label: str, collect_errors: CollectErrors
) -> Iterator[OpenAPIOperation]:
    """Yield all operations. Raises DeclarationError for an invalid document.

    `collect_errors` takes the errors of one path, so that they do not affect other paths.
    """
    paths = document.root.get("paths", {})
    if not isinstance(paths, Mapping):
        raise DeclarationError(f"{label}: the member paths of {document.name} must be an object")

    count = 0
    for path, item in paths.items():
        if not path.startswith("/"):
            continue  # An extension: x-…
        resolved: dict[str, Any] = {}
        with collect_errors(f"{label}, {path}"):
            resolved = references.resolve(item, f"{label}, {path}")
        for method in HTTP_METHODS:
            entry = resolved.get(method)
            if not isinstance(entry, Mapping):
                continue
            count += 1
            if count > MAX_OPERATIONS:
                raise DeclarationError(f"{label}: {document.name} has more than {MAX_OPERATIONS} operations")
            yield _build_operation(document, path, method, resolved, entry)


def _build_operation(
    document: OpenAPIDocument, path: str, method: str, item: Mapping[str, Any], entry: Mapping[str, Any]
) -> OpenAPIOperation:
    security = entry.get("security", document.root.get("security", ()))
    servers = entry.get("servers") or item.get("servers") or ()
    tags = entry.get("tags", ())

    return OpenAPIOperation(
        method=method.upper(),
        path=path,
        definition=entry,
        path_parameters=item["parameters"] if isinstance(item.get("parameters"), list) else (),
        servers=servers if isinstance(servers, list) else (),
        id=_get_text(entry, "operationId"),
        summary=_get_text(entry, "summary") or _get_text(item, "summary"),
        description=_get_text(entry, "description") or _get_text(item, "description"),
        tags=tuple(tag for tag in tags if isinstance(tag, str)) if isinstance(tags, list) else (),
        is_deprecated=entry.get("deprecated") is True,
        security=security if isinstance(security, list) else (),
    )


def collect_parameters(operation: OpenAPIOperation, references: References, label: str) -> list[dict[str, Any]]:
    """Collect the parameters; those of the operation override those of the path.

    Raises DeclarationError.
    """
    own = operation.definition.get("parameters")
    parameters: dict[tuple[str, str], dict[str, Any]] = {}
    for node in (*operation.path_parameters, *(own if isinstance(own, list) else ())):
        entry = references.resolve(node, label)
        name, place = entry.get("name"), entry.get("in")
        if not isinstance(name, str) or not name or place not in ("path", "query", "header", "cookie"):
            raise DeclarationError(f"{label}: a parameter has no name, or an unknown place")
        parameters[name, place] = entry
    if len(parameters) > MAX_PARAMETERS:
        raise DeclarationError(f"{label}: more than {MAX_PARAMETERS} parameters")
    return list(parameters.values())


def _get_text(entry: Mapping[str, Any], key: str) -> str:
    value = entry.get(key)
    return value.strip() if isinstance(value, str) else ""
