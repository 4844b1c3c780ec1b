"""Tool names, made of the operation's id or of its method and path."""

import hashlib
import re

from mcp_django.contrib.openapi.document.operations import OpenAPIOperation
from mcp_django.extensions.calls import get_logger

logger = get_logger("mcp_django.providers")
MAX_NAME_CHARACTERS = 64


def build_tool_name(operation: OpenAPIOperation, prefix: str) -> str:
    """Build a stable, valid tool name for an operation without an explicit name."""
    name = _sanitize(operation.id) or _sanitize(f"{operation.method.lower()}_{_describe_path(operation.path)}")
    max_characters = MAX_NAME_CHARACTERS - len(prefix)
    if len(name) > max_characters:
        digest = hashlib.sha256(str(operation).encode()).hexdigest()[:6]
        name = f"{name[: max_characters - 7].rstrip('_')}_{digest}"
    return name


def make_names_unique(requested: list[tuple[OpenAPIOperation, str, bool]], label: str) -> list[str]:
    """Make names unique: explicit names stay, other duplicates get a number.

    `requested` contains operations with their names, and True for names that the project gave explicitly.
    """
    taken = {name for _, name, is_explicit in requested if is_explicit}
    owners: dict[str, OpenAPIOperation] = {}
    names: list[str] = []
    for operation, preferred, is_explicit in requested:
        name, number = preferred, 2
        while not is_explicit and (name in taken or name in owners):
            ending = f"_{number}"
            name, number = f"{preferred[: MAX_NAME_CHARACTERS - len(ending)]}{ending}", number + 1
        if name != preferred:
            other = owners.get(preferred)
            logger.warning(
                "%s: %s is called %s, because %s is called %s; set name= in a Route",
                *(label, operation, name, other or "a route's operation", preferred),
            )
        owners.setdefault(name, operation)
        names.append(name)

    return names


def _sanitize(text: str) -> str:
    return re.sub(r"[^A-Za-z0-9_.\-]+", "_", text).strip("_.-")


def _describe_path(path: str) -> str:
    """Convert "/pets/{id}/toys" to "pets_by_id_toys"."""
    return re.sub(r"\{([^{}]*)\}", r"by_\1", path.strip("/")).replace("/", "_") or "root"
