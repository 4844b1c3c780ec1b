"""References: `$ref` within the document, by JSON pointer (RFC 6901)."""

from collections.abc import Mapping
from typing import Any
from urllib.parse import unquote

from mcp_django.schema import DeclarationError

CHAIN = 32
"""Maximum length of a chain of references."""


class References:
    """Resolves the references of one document."""

    def __init__(self, root: Mapping[str, Any]) -> None:
        self._root = root

    def resolved(self, node: Any, where: str) -> dict[str, Any]:
        """Return the object of a node, following references.

        Members beside a `$ref` (OpenAPI 3.1: a description) override those of its target. Raises DeclarationError for a
        reference to another document, to a missing target, or in a cycle.
        """
        beside: dict[str, Any] = {}
        for _ in range(CHAIN):
            if not isinstance(node, Mapping):
                raise DeclarationError(f"{where}: an object was expected, not {type(node).__name__}")
            if "$ref" not in node:
                return {**node, **beside}
            beside = {**{key: node[key] for key in ("description", "summary") if key in node}, **beside}
            node = self.at(node["$ref"], where)
        raise DeclarationError(f"{where}: references form a cycle")

    def at(self, reference: Any, where: str) -> Any:
        """Return the target of a reference. Raises DeclarationError."""
        if not isinstance(reference, str) or not reference.startswith("#"):
            raise DeclarationError(
                f"{where}: {str(reference)[:200]!r} refers to another document; bundle both into one"
            )
        if reference != "#" and not reference.startswith("#/"):
            raise DeclarationError(f"{where}: {reference[:200]!r} is an invalid JSON pointer")

        here: Any = self._root
        for step in reference[2:].split("/") if len(reference) > 1 else ():
            step = unquote(step).replace("~1", "/").replace("~0", "~")
            if isinstance(here, Mapping) and step in here:
                here = here[step]
            elif isinstance(here, list) and step.isascii() and step.isdigit() and int(step) < len(here):
                here = here[int(step)]
            else:
                raise DeclarationError(f"{where}: {reference[:200]!r} refers to nothing")

        return here
