"""Types and schemas: signatures into JSON Schema, arguments into values, results into JSON.

The one door to pydantic, jsonschema-rs, docstring-parser and msgspec: what else needs them comes through these names.
It knows no server, no transport and no Django.
"""

from .callables import shape_of
from .choices import Choice
from .docstrings import Description, describe
from .errors import ArgumentError, DeclarationError, OutputError
from .forms import Form, form_of
from .handwritten import check_schema, header_params
from .jsonable import is_lazy, to_json
from .native import natively
from .output import Output, output_of
from .prompts import PromptParameters, prompt_parameters_of, text_reader, uri_parameters_of
from .reading import Reading, reading_of
from .signature import Parameters, injected_among, parameters_of
from .validation import Checker

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
