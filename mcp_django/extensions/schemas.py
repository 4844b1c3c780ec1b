"""JSON Schemas of tools that a provider builds, and JSON values.

A provider that has schemas of another source, such as the document of an API, converts them with `to_json_schema`,
checks them with `check_schema`, and gives the compiled ones to `CustomParameters` or to its own `ToolParameters`.
"""

from mcp_django.protocol.headers import HeaderParam
from mcp_django.protocol.jsonrpc import JSONMapping, JSONObject
from mcp_django.schema import (
    ANNOTATION_KEYWORDS,
    SchemaChecker,
    any_of_types,
    call_in_default_language,
    check_schema,
    find_header_params,
    list_types,
    make_nullable,
    strip_null,
    to_json,
    to_json_schema,
)
from mcp_django.schema.custom_schema import CustomParameters
from mcp_django.schema.jsonable import LIMIT_KEYWORDS

__all__ = [
    "ANNOTATION_KEYWORDS",
    "LIMIT_KEYWORDS",
    "CustomParameters",
    "HeaderParam",
    "JSONMapping",
    "JSONObject",
    "SchemaChecker",
    "any_of_types",
    "call_in_default_language",
    "check_schema",
    "find_header_params",
    "list_types",
    "make_nullable",
    "strip_null",
    "to_json",
    "to_json_schema",
]
