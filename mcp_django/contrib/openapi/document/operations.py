"""The operations of a document: methods at paths, with what the document says of each."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from mcp_django.contrib.openapi.document.document import Document
from mcp_django.contrib.openapi.document.references import References
from mcp_django.schema import DeclarationError

METHODS = ("get", "post", "put", "patch", "delete")
"""The methods that become tools. HEAD, OPTIONS and TRACE say nothing that a list of tools does not."""
MAX_OPERATIONS = 5000
MAX_PARAMETERS = 200


@dataclass(frozen=True, slots=True, eq=False)
class Operation:
    """One method at one path."""

    method: str
    """In upper case."""
    path: str
    """As the document has it: "/pets/{id}"."""
    entry: Mapping[str, Any]
    """What the document says of it."""
    shared: Sequence[Any] = ()
    """Parameters of its path."""
    servers: Sequence[Any] = ()
    """Those of its own or of its path; empty for the document's."""
    id: str = ""
    summary: str = ""
    description: str = ""
    tags: tuple[str, ...] = ()
    is_deprecated: bool = False
    security: Sequence[Any] = field(default_factory=tuple)

    def __str__(self) -> str:
        return f"{self.method} {self.path}"


def operations_of(document: Document, references: References, where: str) -> Iterator[Operation]:
    """Every operation. Raises DeclarationError where the document as a whole is not what it should be."""
    paths = document.root.get("paths", {})
    if not isinstance(paths, Mapping):
        raise DeclarationError(f"{where}: the paths of {document.name} are no object")
    count = 0
    for path, item in paths.items():
        if not path.startswith("/"):
            continue  # an extension: x-…
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
    """The parameters, references followed; one of the operation's own takes the place of its path's.

    Raises DeclarationError.
    """
    own = operation.entry.get("parameters")
    found: dict[tuple[str, str], dict[str, Any]] = {}
    for node in (*operation.shared, *(own if isinstance(own, list) else ())):
        entry = references.resolved(node, where)
        name, place = entry.get("name"), entry.get("in")
        if not isinstance(name, str) or not name or place not in ("path", "query", "header", "cookie"):
            raise DeclarationError(f"{where}: a parameter has no name, or is in no place that is known")
        found[name, place] = entry
    if len(found) > MAX_PARAMETERS:
        raise DeclarationError(f"{where}: more than {MAX_PARAMETERS} parameters")
    return list(found.values())


def _text(entry: Mapping[str, Any], key: str) -> str:
    value = entry.get(key)
    return value.strip() if isinstance(value, str) else ""
