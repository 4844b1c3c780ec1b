"""References: `$ref` within the document, by JSON pointer (RFC 6901)."""

from collections.abc import Mapping
from typing import Any
from urllib.parse import unquote

from mcp_django.extensions.errors import DeclarationError

MAX_REFERENCE_CHAIN = 32
"""Maximum length of a chain of references."""


class References:
    """Resolves the references of one document."""

    def __init__(self, root: Mapping[str, Any]) -> None:
        self._root = root

    def resolve(self, node: Any, label: str) -> dict[str, Any]:
        """Return the object of a node, following references.

        Members beside a `$ref` (OpenAPI 3.1: a description) override those of its target. Raises DeclarationError for a
        reference to another document, to a missing target, or in a cycle.
        """
        overrides: dict[str, Any] = {}
        for _ in range(MAX_REFERENCE_CHAIN):
            if not isinstance(node, Mapping):
                raise DeclarationError(f"{label}: an object was expected, not {type(node).__name__}")
            if "$ref" not in node:
                return {**node, **overrides}
            overrides = {**{key: node[key] for key in ("description", "summary") if key in node}, **overrides}
            node = self.get_target(node["$ref"], label)
        raise DeclarationError(f"{label}: references form a cycle")

    def get_target(self, reference: Any, label: str) -> Any:
        """Return the target of a reference. Raises DeclarationError."""
        if not isinstance(reference, str) or not reference.startswith("#"):
            raise DeclarationError(
                f"{label}: {str(reference)[:200]!r} refers to another document; bundle both into one"
            )
        if reference != "#" and not reference.startswith("#/"):
            raise DeclarationError(f"{label}: {reference[:200]!r} is an invalid JSON pointer")

        target: Any = self._root
        for step in reference[2:].split("/") if len(reference) > 1 else ():
            step = unquote(step).replace("~1", "/").replace("~0", "~")
            if isinstance(target, Mapping) and step in target:
                target = target[step]
            elif isinstance(target, list) and step.isascii() and step.isdigit() and int(step) < len(target):
                target = target[int(step)]
            else:
                raise DeclarationError(f"{label}: {reference[:200]!r} refers to nothing")

        return target
