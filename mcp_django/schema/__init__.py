"""Types and schemas: schemas of signatures, values of arguments, JSON of results.

Only this package uses pydantic, jsonschema-rs, docstring-parser and msgspec; other packages use the names exported
here. It does not depend on servers, transports or Django.
"""

from mcp_django.schema.alternatives import (
    ANNOTATION_KEYWORDS,
    ANY_VALUE_SCHEMA,
    any_of_types,
    list_types,
    make_nullable,
    strip_null,
)
from mcp_django.schema.custom_schema import check_schema, find_header_params
from mcp_django.schema.failures import DeclarationFailure, convert_failures, describe_failure
from mcp_django.schema.forms import Choice, ElicitationForm, build_form
from mcp_django.schema.functions.callables import DocstringDescription, describe_callable, inspect_callable
from mcp_django.schema.functions.output import CompiledOutput, compile_output
from mcp_django.schema.functions.prompts import (
    PromptParameters,
    compile_prompt_parameters,
    compile_text_reader,
    compile_uri_parameters,
)
from mcp_django.schema.functions.signature import CompiledParameters, compile_parameters, find_injected
from mcp_django.schema.jsonable import (
    call_in_default_language,
    is_lazy,
    to_json,
    to_json_fallback,
    to_json_schema,
)
from mcp_django.schema.portable_schemas import build_portable_input, build_portable_output
from mcp_django.schema.reading import TextParser, compile_text_parser
from mcp_django.schema.validation.validation import (
    ArgumentError,
    ConflictError,
    DeclarationError,
    OutputError,
    SchemaChecker,
)

__all__ = [
    "ANNOTATION_KEYWORDS",
    "ANY_VALUE_SCHEMA",
    "ArgumentError",
    "Choice",
    "CompiledOutput",
    "CompiledParameters",
    "ConflictError",
    "DeclarationError",
    "DeclarationFailure",
    "DocstringDescription",
    "ElicitationForm",
    "OutputError",
    "PromptParameters",
    "SchemaChecker",
    "TextParser",
    "any_of_types",
    "build_form",
    "build_portable_input",
    "build_portable_output",
    "call_in_default_language",
    "check_schema",
    "compile_output",
    "compile_parameters",
    "compile_prompt_parameters",
    "compile_text_parser",
    "compile_text_reader",
    "compile_uri_parameters",
    "convert_failures",
    "describe_callable",
    "describe_failure",
    "find_header_params",
    "find_injected",
    "inspect_callable",
    "is_lazy",
    "list_types",
    "make_nullable",
    "strip_null",
    "to_json",
    "to_json_fallback",
    "to_json_schema",
]
