"""Descriptions from docstrings: a summary, and a text for each parameter.

Google, NumPy and Sphinx styles are recognized by their section marks. Sections for Python callers (returns, raises,
examples) are left out. Only this module uses docstring-parser.
"""

import inspect
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from docstring_parser import DocstringStyle, ParseError, parse

from mcp_django.schema.functions.callables import unwrap_partial

_SPHINX = re.compile(r"^\s*:(param|parameter|arg|argument|type|return|returns|rtype|raise|raises)\b.*:", re.M)
_NUMPY = re.compile(r"^[A-Z][A-Za-z ]+\n-{3,}\s*$", re.M)
_GOOGLE = re.compile(
    r"^(Args|Arguments|Parameters|Params|Raises|Exceptions|Except|Attributes|Examples?|Returns|Yields):\s*$", re.M
)


@dataclass(frozen=True, slots=True)
class DocstringDescription:
    """The description of a docstring."""

    summary: str = ""
    """Text before the first section, with its paragraphs. Empty without a docstring."""
    parameters: dict[str, str] = field(default_factory=dict)
    """Parameter name to its description on one line."""


def describe_callable(fn: Callable[..., Any]) -> DocstringDescription:
    """Parse the docstring of a function, method, partial, class or callable object."""
    return parse_docstring(_get_docstring(fn))


def parse_docstring(text: str) -> DocstringDescription:
    """Split a docstring into a summary and parameter descriptions.

    A docstring with a syntax error becomes the summary.
    """
    text = inspect.cleandoc(text)
    style = _detect_style(text)
    if style is None:
        return DocstringDescription(summary=text)

    try:
        parsed = parse(text, style=style)
    except ParseError:
        return DocstringDescription(summary=text)

    parameters = {
        name.strip().lstrip("*"): " ".join(param.description.split())
        for param in parsed.params
        if param.description
        for name in param.arg_name.split(",")
    }
    return DocstringDescription(summary=(parsed.description or "").strip(), parameters=parameters)


def _detect_style(text: str) -> DocstringStyle | None:
    if _NUMPY.search(text):
        return DocstringStyle.NUMPYDOC
    if _GOOGLE.search(text):
        return DocstringStyle.GOOGLE
    if _SPHINX.search(text):
        return DocstringStyle.REST
    return None


def _get_docstring(fn: Callable[..., Any]) -> str:
    inner = unwrap_partial(fn)
    text = inspect.getdoc(inner)
    if text is None and not inspect.isroutine(inner) and not inspect.isclass(inner):
        text = inspect.getdoc(type(inner).__call__)
    return text or ""
