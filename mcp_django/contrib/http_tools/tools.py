"""Tools of operations: their schemas, parameters and output, and annotations of HTTP methods."""

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

from mcp_django.extensions.calls import Context
from mcp_django.extensions.primitives import AtomicDatabases, Handler, Tool, ToolOutput, ToolParameters, build_tool
from mcp_django.extensions.schemas import SchemaChecker
from mcp_django.types import ToolAnnotations

Schema = dict[str, Any]
DESCRIPTIVE_KEYWORDS = ("description", "title")
HTTP_METHODS = ("get", "post", "put", "patch", "delete")
"""HTTP methods that become tools. HEAD, OPTIONS and TRACE would add nothing to a list of tools."""
MAX_EXTRACTION_ROUNDS = 4
"""Maximum rounds of removing invalid parts of a result."""


class OperationOutput:
    """The structured output of a tool (`server.primitives.ToolOutput`).

    The first violation of the schema is logged.
    """

    logger: ClassVar[logging.Logger]
    violation_message: ClassVar[str]
    """Message of the log for a violation, with the tool and the problems as arguments."""

    def __init__(self, schema: Schema, checker: SchemaChecker, *, wrapped: bool, name: str) -> None:
        self.schema = schema
        self.is_wrapped = wrapped
        self._checker = checker
        self._name = name
        self._has_warned = False

    def to_structured(self, value: Any) -> Any:
        """Return the value of a result, or an empty object."""
        return {} if value is None else value

    def is_valid(self, value: Any) -> bool:
        """Return True if the schema allows a value, or log the problems."""
        if self._checker.is_valid(value):
            return True
        if not self._has_warned:
            self._has_warned = True
            self.logger.warning(self.violation_message, self._name, self._checker.describe_problems(value, "key"))
        return False

    def extract_valid(self, structured: Any) -> dict[str, Any] | None:
        """Return the part of structured content that the schema allows; None if no part is valid.

        Clients refuse a result as a whole if a part of it violates the schema. A member that is invalid in one item of
        a list is removed from all of its items.
        """
        if self.is_valid(structured):
            valid: dict[str, Any] = structured
            return valid
        for _ in range(MAX_EXTRACTION_ROUNDS):
            paths = self._checker.find_failing_paths(structured)
            for path in dict.fromkeys(tuple(step if isinstance(step, str) else 0 for step in path) for path in paths):
                structured = _remove_path(structured, path)
            if self._checker.is_valid(structured):
                return dict(structured)
        return {} if self._checker.is_valid({}) else None


def _remove_path(value: Any, path: Sequence[str | int]) -> Any:
    """Return a copy without the last named member of a path, in all items of the lists on the path."""
    if not any(isinstance(step, str) for step in path):
        return {}
    if isinstance(value, list):
        return [_remove_path(item, path[1:]) for item in value]
    if not isinstance(value, dict) or path[0] not in value:
        return value
    name, *rest = path
    if not any(isinstance(step, str) for step in rest):
        return {key: inner for key, inner in value.items() if key != name}
    return {**value, name: _remove_path(value[name], rest)}


def build_operation_tool(
    call: Callable[..., Any],
    name: str,
    *,
    source: str,
    parameters: ToolParameters,
    output: ToolOutput | None = None,
    atomic: AtomicDatabases = None,
    tool_class: Callable[..., Tool] = Tool,
    **options: Any,
) -> Tool:
    """Build the tool of an operation; `call` has the parameters `context` and `arguments`.

    Raises DeclarationError for invalid options.
    """
    tool = build_tool(_placeholder, name, tool_class=tool_class, **options)
    tool.parameters = parameters
    tool.output = output
    tool.handler = Handler(call, {"context": Context}, atomic=atomic)
    tool.source = source
    return tool


def _placeholder() -> None:
    """Replace the handler while `build_tool` checks the options."""


def build_method_annotations(method: str, *, creates: bool, open_world: bool | None = None) -> ToolAnnotations:
    """Build the annotations that follow from an HTTP method (RFC 9110, section 9.2)."""
    if method.lower() == "get":
        return ToolAnnotations(read_only=True, open_world=open_world)
    return ToolAnnotations(
        read_only=False, destructive=not creates, idempotent=method.lower() in ("put", "delete"), open_world=open_world
    )


def move_exclusive_limits(schema: Mapping[str, Any], translated: Schema) -> None:
    """Translate the flags of OpenAPI 3.0 for exclusive limits, in place."""
    for limit, exclusive in (("minimum", "exclusiveMinimum"), ("maximum", "exclusiveMaximum")):
        if schema.get(exclusive) is True and limit in translated:
            translated[exclusive] = translated.pop(limit)
        elif schema.get(exclusive) is False:
            translated.pop(exclusive, None)


def wrap_schema(schema: Schema, *, is_required: bool) -> Schema:
    """Return the schema of an object with the value under "result"."""
    inner = {key: value for key, value in schema.items() if key != "$defs"}
    wrapped: Schema = {"type": "object", "properties": {"result": inner}}
    if is_required:
        wrapped["required"] = ["result"]
    return {**wrapped, "$defs": schema["$defs"]} if "$defs" in schema else wrapped
