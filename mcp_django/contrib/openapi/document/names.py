"""Tool names, made of the operation's id or of its method and path."""

import hashlib
import logging
import re

from mcp_django.contrib.openapi.document.operations import Operation

logger = logging.getLogger("mcp_django.providers")
LONGEST = 64


def name_of(operation: Operation, prefix: str) -> str:
    """Build a stable, valid tool name for an operation without an explicit name."""
    plain = _plain(operation.id) or _plain(f"{operation.method.lower()}_{_told(operation.path)}")
    room = LONGEST - len(prefix)
    if len(plain) > room:
        mark = hashlib.sha256(str(operation).encode()).hexdigest()[:6]
        plain = f"{plain[: room - 7].rstrip('_')}_{mark}"
    return plain


def unique(wanted: list[tuple[Operation, str, bool]], where: str) -> list[str]:
    """Make names unique: explicit names stay, other duplicates get a number.

    `requested` contains operations with their names, and True for names that the project gave explicitly.
    """
    taken = {name for _, name, given in wanted if given}
    owners: dict[str, Operation] = {}
    found: list[str] = []
    for operation, wish, given in wanted:
        name, number = wish, 2
        while not given and (name in taken or name in owners):
            ending = f"_{number}"
            name, number = f"{wish[: LONGEST - len(ending)]}{ending}", number + 1
        if name != wish:
            other = owners.get(wish)
            logger.warning(
                "%s: %s is called %s, because %s is called %s; set name= in a Route",
                *(where, operation, name, other or "a route's operation", wish),
            )
        owners.setdefault(name, operation)
        found.append(name)

    return found


def _plain(text: str) -> str:
    return re.sub(r"[^A-Za-z0-9_.\-]+", "_", text).strip("_.-")


def _told(path: str) -> str:
    """Convert "/pets/{id}/toys" to "pets_by_id_toys"."""
    return re.sub(r"\{([^{}]*)\}", r"by_\1", path.strip("/")).replace("/", "_") or "root"
