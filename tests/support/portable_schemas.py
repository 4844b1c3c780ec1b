"""Rules for schemas that clients accept without warnings, as the MCP Inspector's `--strict` checks them."""

from collections.abc import Iterator
from typing import Any

from mcp_django.schema.validation.complexity import iter_subschemas

ANNOTATIONS = {"title", "description", "default", "examples", "deprecated", "readOnly", "writeOnly", "$comment"}
CONTAINERS = {"$schema", "$id", "$anchor", "$defs", "definitions"}


def find_warnings(tools: list[dict[str, Any]]) -> Iterator[str]:
    """Yield the parts of the schemas of listed tools that some clients reject or drop."""
    for tool in tools:
        for key in ("inputSchema", "outputSchema"):
            for part in iter_subschemas(tool.get(key, {"type": "object"})):
                where = f"{tool['name']} {key} {'/'.join(part.pointer)}"
                if isinstance(part.schema.get("type"), list):
                    yield f"{where}: a list of types"
                # Each array needs items, also one of any values.
                if part.pointer[-1:] != ("items",) and not part.schema.keys() - ANNOTATIONS - CONTAINERS:
                    yield f"{where}: no rule"
                for name, value in part.schema.get("properties", {}).items():
                    if isinstance(value, bool):
                        yield f"{where}: {name} is {value}"
