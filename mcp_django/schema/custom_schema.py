"""Custom schemas, written by hand or fetched, checked before use.

Clients receive an accepted schema with its key order and unknown keywords, in the form of `portable_schemas`. Rejected
are unsupported dialects, a root that is not an object, references outside the document, and sizes that would make
validation slow.
"""

import re
from dataclasses import dataclass
from typing import Any

from mcp_django.protocol.headers import PARAM_PREFIX, TOKEN_PATTERN, HeaderParam
from mcp_django.schema.validation.complexity import SchemaGraph, iter_subschemas
from mcp_django.schema.validation.validation import ArgumentError, DeclarationError, SchemaChecker

MAX_SCHEMA_DEPTH = 32
"""Maximum nesting of schemas."""
MAX_SUBSCHEMAS = 2000
"""Maximum number of schemas inside one schema."""
MAX_SCHEMAS_PER_VALUE = 10_000
"""Maximum number of schemas applied to one value, following references."""
HEADER_KEYWORD = "x-mcp-header"
"""Annotation that mirrors an argument into a request header.

See 2026-07-28, basic/transports, custom headers.
"""

_MAX_NESTING = 128
_DIALECTS = re.compile(r"https?://json-schema\.org/(draft-0[467]|draft/20(19-09|20-12))/schema#?")
_HEADER_TYPES = ("integer", "string", "boolean")


@dataclass(frozen=True, slots=True)
class CustomParameters:
    """Parameters of a tool with a custom schema, as `Tool.parameters`.

    The handler receives all arguments as one argument, `arguments`.
    """

    schema: dict[str, Any]
    """Schema for clients."""
    checker: SchemaChecker
    """Compiled schema that each call is checked against: the same one, or one with fewer rules."""
    header_params: tuple[HeaderParam, ...] = ()
    """Arguments that clients mirror into headers, see `find_header_params`."""

    def check(self, arguments: dict[str, Any]) -> None:
        """Raise ArgumentError for arguments that the checker rejects."""
        if not self.checker.is_valid(arguments):
            raise ArgumentError(self.checker.describe_problems(arguments))

    def convert(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """Wrap the arguments into one argument of the handler."""
        return {"arguments": arguments}


def check_schema(schema: Any, where: str) -> SchemaChecker:
    """Check a schema for arguments or results, and compile it.

    Its root is an object. `where` is its place, for messages. Other dialects than JSON Schema, references to other
    documents and sizes that would make validation slow are refused. The schema must not change afterwards.

    Raises:
        DeclarationError: names `where`, the violated rule and the remedy.
    """
    if not isinstance(schema, dict):
        raise DeclarationError(f"{where}: the schema must be a dict, not {type(schema).__name__}")
    _check_json(schema, where)
    if schema.get("type") != "object":
        raise DeclarationError(f"{where}: the root must have 'type': 'object'; put other values under a property")

    _check_dialect(schema, where)
    _check_size(schema, where)
    if SchemaGraph(schema).max_schemas_per_value() > MAX_SCHEMAS_PER_VALUE:
        raise DeclarationError(
            f"{where}: references apply more than {MAX_SCHEMAS_PER_VALUE} schemas to one value, or a schema to "
            "itself; simplify it"
        )

    try:
        return SchemaChecker(schema)
    except DeclarationError as error:
        raise DeclarationError(f"{where}: {error}") from error


def find_header_params(schema: dict[str, Any], where: str) -> tuple[HeaderParam, ...]:
    """Return the arguments that are mirrored into `Mcp-Param-*` headers, by the keyword `x-mcp-header`.

    Raises:
        DeclarationError: for an invalid annotation, for which clients would drop the tool.
    """
    params: dict[bytes, HeaderParam] = {}
    for position in iter_subschemas(schema):
        if HEADER_KEYWORD not in position.schema:
            continue

        name, place = position.schema[HEADER_KEYWORD], ".".join(position.properties or ())
        if not position.properties:
            raise DeclarationError(
                f"{where}: {HEADER_KEYWORD} at {'/'.join(position.pointer) or 'the root'} is not on a property "
                "reached through "
                "'properties' alone; move it to such a property"
            )
        if not isinstance(name, str) or not TOKEN_PATTERN.fullmatch(name):
            raise DeclarationError(
                f"{where}: {HEADER_KEYWORD} of '{place}' must be a header token (letters, digits and -), not {name!r}"
            )
        if position.schema.get("type") not in _HEADER_TYPES:
            raise DeclarationError(
                f"{where}: {HEADER_KEYWORD} of '{place}' needs a property of type integer, string or boolean, "
                f"not {position.schema.get('type', 'one without a plain type')!r}"
            )

        header = PARAM_PREFIX + name.lower().encode()
        if header in params:
            raise DeclarationError(
                f"{where}: {HEADER_KEYWORD} {name!r} is on '{'.'.join(params[header].path)}' and on '{place}'; "
                "header names must differ in more than case"
            )
        params[header] = HeaderParam(position.properties, header)
    return tuple(sorted(params.values()))


def _check_dialect(schema: dict[str, Any], where: str) -> None:
    dialect = schema.get("$schema")
    if dialect is not None and not (isinstance(dialect, str) and _DIALECTS.fullmatch(dialect)):
        raise DeclarationError(
            f"{where}: the dialect {dialect!r} is not supported; use JSON Schema 2020-12 and leave '$schema' out"
        )


def _check_size(schema: dict[str, Any], where: str) -> None:
    for count, position in enumerate(iter_subschemas(schema), start=1):
        if count > MAX_SUBSCHEMAS:
            raise DeclarationError(f"{where}: more than {MAX_SUBSCHEMAS} schemas inside; simplify it")
        if position.depth > MAX_SCHEMA_DEPTH:
            raise DeclarationError(f"{where}: schemas nested deeper than {MAX_SCHEMA_DEPTH}; use '$defs' and '$ref'")


def _check_json(schema: dict[str, Any], where: str) -> None:
    """Check that a schema is JSON, and not nested too deeply.

    Raises:
        DeclarationError: names the path of the first value that is not JSON.
    """
    level: list[tuple[Any, tuple[Any, ...]]] = [(schema, ())]
    for _ in range(_MAX_NESTING):
        inner: dict[int, tuple[Any, tuple[Any, ...]]] = {}  # a shared value would double the work at each level
        for item, path in level:
            if isinstance(item, dict):
                for key in item:
                    if not isinstance(key, str):
                        raise DeclarationError(f"{where}: {_describe_path(path)} has the key {key!r}, not a text")
                inner |= {id(value): (value, (*path, key)) for key, value in item.items()}
            elif isinstance(item, list):
                inner |= {id(value): (value, (*path, number)) for number, value in enumerate(item)}
            elif not (item is None or isinstance(item, str | int | float)):
                kind = type(item).__name__
                raise DeclarationError(
                    f"{where}: {_describe_path(path)} is a value of type {kind}, which is not JSON; give a text, a "
                    "number, a list or a dict"
                )

        if not inner:
            return
        level = list(inner.values())
    raise DeclarationError(f"{where}: nested deeper than {_MAX_NESTING} levels; flatten the schema")


def _describe_path(path: tuple[Any, ...]) -> str:
    return "/".join(map(str, path)) or "the root"
