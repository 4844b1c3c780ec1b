"""Types and schemas: schemas of signatures, values of arguments, JSON of results.

Only this package uses pydantic, jsonschema-rs, docstring-parser and msgspec; other packages use the names exported
here. It does not depend on servers, transports or Django.
"""

from mcp_django.schema.choices import Choice
from mcp_django.schema.custom_schema import check_schema, header_params
from mcp_django.schema.errors import ArgumentError, DeclarationError, OutputError
from mcp_django.schema.forms import Form, form_of
from mcp_django.schema.functions.callables import shape_of
from mcp_django.schema.functions.docstrings import Description, describe
from mcp_django.schema.functions.output import Output, output_of
from mcp_django.schema.functions.prompts import PromptParameters, prompt_parameters_of, text_reader, uri_parameters_of
from mcp_django.schema.functions.signature import Parameters, injected_among, parameters_of
from mcp_django.schema.jsonable import is_lazy, to_json
from mcp_django.schema.lazy_strings import natively
from mcp_django.schema.reading import Reading, reading_of
from mcp_django.schema.validation.validation import Checker

__all__ = [
    "ArgumentError",
    "Checker",
    "Choice",
    "DeclarationError",
    "Description",
    "Form",
    "Output",
    "OutputError",
    "Parameters",
    "PromptParameters",
    "Reading",
    "check_schema",
    "describe",
    "form_of",
    "header_params",
    "injected_among",
    "is_lazy",
    "natively",
    "output_of",
    "parameters_of",
    "prompt_parameters_of",
    "reading_of",
    "shape_of",
    "text_reader",
    "to_json",
    "uri_parameters_of",
]
