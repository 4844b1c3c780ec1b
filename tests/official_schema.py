"""The official JSON Schemas of the five revisions, as checks for tests.

    validator("2025-11-25", "Tool")({"name": "add", "inputSchema": {"type": "object"}})

The files in `schemas/` are the specification's own, unchanged. They are generated from TypeScript, and its `number`
became `integer` in places, where `null` got lost too; those places are mended on loading.
"""

import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema_rs

SCHEMAS = Path(__file__).parent / "schemas"
REVISIONS = tuple(sorted(path.stem for path in SCHEMAS.glob("*.json")))


@cache
def document(revision: str) -> dict[str, Any]:
    """The whole schema of a revision, mended."""
    schema: dict[str, Any] = json.loads((SCHEMAS / f"{revision}.json").read_text())
    found = schema.get("$defs") or schema["definitions"]
    for name in ("JSONValue", "ElicitResult"):
        for node in _nodes(found.get(name, {})):
            if node.get("type") == ["string", "integer", "boolean"]:
                node["type"] = ["string", "number", "boolean"] + (["null"] if name == "JSONValue" else [])
    for keyword in ("minimum", "maximum", "default"):
        bound = found.get("NumberSchema", {}).get("properties", {}).get(keyword)
        if bound is not None:
            bound["type"] = "number"
    return schema


def definitions(revision: str) -> dict[str, Any]:
    """The named definitions of a revision."""
    schema = document(revision)
    found: dict[str, Any] = schema.get("$defs") or schema["definitions"]
    return found


class Validator:
    """A check against one definition: call it, or call `validate`."""

    def __init__(self, revision: str, definition: str) -> None:
        if definition not in definitions(revision):
            raise LookupError(f"{revision} has no definition {definition}")
        keyword = "$defs" if "$defs" in document(revision) else "definitions"
        schema = {**document(revision), "$ref": f"#/{keyword}/{definition}"}
        self._where = f"{revision} {definition}"
        self._validator = jsonschema_rs.validator_for(schema, validate_formats=True)

    def validate(self, value: Any) -> None:
        """Raise AssertionError with every problem of `value`."""
        problems = [
            f"{'/'.join(map(str, error.instance_path)) or 'the value'}: {error.message}"
            for error in self._validator.iter_errors(value)
        ]
        assert not problems, f"{self._where}: {'; '.join(problems)}"

    __call__ = validate


@cache
def validator(revision: str, definition: str) -> Validator:
    """The check of `definition` in `revision`. Raises LookupError where the revision does not define it."""
    return Validator(revision, definition)


def _nodes(schema: Any) -> Iterator[dict[str, Any]]:
    if isinstance(schema, dict):
        yield schema
    for inner in schema.values() if isinstance(schema, dict) else schema if isinstance(schema, list) else ():
        yield from _nodes(inner)
