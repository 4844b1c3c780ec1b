"""Operations of a document: methods at paths, with their definitions."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from mcp_django.contrib.openapi.document.document import Document
from mcp_django.contrib.openapi.document.references import References
from mcp_django.schema import DeclarationError

METHODS = ("get", "post", "put", "patch", "delete")
"""Methods that become tools; HEAD, OPTIONS and TRACE are useless as tools."""
MAX_OPERATIONS = 5000
MAX_PARAMETERS = 200


@dataclass(frozen=True, slots=True, eq=False)
class Operation:
    """A method at a path."""

    method: str
    """HTTP method in upper case."""
    path: str
    """Path as in the document: "/pets/{id}"."""
    entry: Mapping[str, Any]
    """Operation Object of the document."""
    shared: Sequence[Any] = ()
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


def operations_of(document: Document, references: References, where: str) -> Iterator[Operation]:
    """Yield all operations. Raises DeclarationError for an invalid document."""
    paths = document.root.get("paths", {})
    if not isinstance(paths, Mapping):
        raise DeclarationError(f"{where}: the member paths of {document.name} must be an object")

    count = 0
    for path, item in paths.items():
        if not path.startswith("/"):
            continue  # An extension: x-…
        item = references.resolved(item, f"{where}: {path}")
        for method in METHODS:
            entry = item.get(method)
            if not isinstance(entry, Mapping):
                continue
            count += 1
            if count > MAX_OPERATIONS:
                raise DeclarationError(f"{where}: {document.name} has more than {MAX_OPERATIONS} operations")
            yield _operation(document, path, method, item, entry)


def _operation(
    document: Document, path: str, method: str, item: Mapping[str, Any], entry: Mapping[str, Any]
) -> Operation:
    security = entry.get("security", document.root.get("security", ()))
    servers = entry.get("servers") or item.get("servers") or ()
    tags = entry.get("tags", ())

    return Operation(
        method=method.upper(),
        path=path,
        entry=entry,
        shared=item["parameters"] if isinstance(item.get("parameters"), list) else (),
        servers=servers if isinstance(servers, list) else (),
        id=_text(entry, "operationId"),
        summary=_text(entry, "summary") or _text(item, "summary"),
        description=_text(entry, "description") or _text(item, "description"),
        tags=tuple(tag for tag in tags if isinstance(tag, str)) if isinstance(tags, list) else (),
        is_deprecated=entry.get("deprecated") is True,
        security=security if isinstance(security, list) else (),
    )


def parameter_entries(operation: Operation, references: References, where: str) -> list[dict[str, Any]]:
    """Collect the parameters; those of the operation override those of the path.

    Raises DeclarationError.
    """
    own = operation.entry.get("parameters")
    found: dict[tuple[str, str], dict[str, Any]] = {}
    for node in (*operation.shared, *(own if isinstance(own, list) else ())):
        entry = references.resolved(node, where)
        name, place = entry.get("name"), entry.get("in")
        if not isinstance(name, str) or not name or place not in ("path", "query", "header", "cookie"):
            raise DeclarationError(f"{where}: a parameter has no name, or an unknown place")
        found[name, place] = entry
    if len(found) > MAX_PARAMETERS:
        raise DeclarationError(f"{where}: more than {MAX_PARAMETERS} parameters")
    return list(found.values())


def _text(entry: Mapping[str, Any], key: str) -> str:
    value = entry.get(key)
    return value.strip() if isinstance(value, str) else ""
