"""Signatures of callables with every annotation resolved, and descriptions from docstrings.

Supports functions, bound methods, `functools.partial`, classes and objects with `__call__`. This module uses `inspect`
and `typing`, and does not depend on JSON Schema.

Google, NumPy and Sphinx docstrings are recognized by their section marks. Sections for Python callers (returns, raises,
examples) are left out. Only this module uses docstring-parser.
"""

import functools
import inspect
import re
import sys
import types
import typing
from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass, field
from typing import Any

from docstring_parser import DocstringStyle, ParseError, parse

from mcp_django.schema.validation.validation import DeclarationError

MISSING: Any = inspect.Parameter.empty
"""Marker of a missing annotation or default."""


@dataclass(frozen=True, slots=True)
class CallableParameter:
    """A parameter of a callable."""

    name: str
    annotation: Any
    """Resolved type with `Annotated` kept, or `Any` without an annotation."""
    default: Any = MISSING

    @property
    def is_required(self) -> bool:
        """True if a caller must give a value."""
        return self.default is MISSING


@dataclass(frozen=True, slots=True)
class CallableSignature:
    """The parameters and the result of a callable."""

    name: str
    """Name for messages."""
    parameters: dict[str, CallableParameter]
    takes_kwargs: bool
    """True if the callable has `**kwargs`."""
    returns: Any
    """Resolved return annotation, or `MISSING`."""


def unwrap_partial(fn: Callable[..., Any]) -> Callable[..., Any]:
    """Return the function inside partials, for its name and docstring."""
    while isinstance(fn, functools.partial | functools.partialmethod):
        fn = fn.func
    return fn


def get_callable_name(fn: Callable[..., Any]) -> str:
    """Return the name of a callable for messages."""
    inner = unwrap_partial(fn)
    return str(getattr(inner, "__qualname__", None) or type(inner).__qualname__).replace("<locals>.", "")


def inspect_callable(fn: Callable[..., Any], *, skip: Container[str] = ()) -> CallableSignature:
    """Inspect the signature of a callable.

    Parameters bound by a partial are left out, so that callers cannot override them.

    Raises:
        DeclarationError: for positional-only parameters, `*args`, and annotations that cannot be resolved.
    """
    name = get_callable_name(fn)
    signature = _get_signature(fn, name)
    namespace = _build_namespace(fn)
    bound = _find_bound_names(fn)
    arguments: dict[str, CallableParameter] = {}
    takes_any = False

    for parameter in signature.parameters.values():
        if parameter.name in bound:
            continue
        if parameter.kind is parameter.VAR_KEYWORD:
            takes_any = True
            continue
        if parameter.kind is parameter.VAR_POSITIONAL:
            raise DeclarationError(
                f"{name}() takes *{parameter.name}, but arguments arrive by name; declare the parameters one by one"
            )
        if parameter.kind is parameter.POSITIONAL_ONLY:
            raise DeclarationError(
                f"{name}(): parameter '{parameter.name}' is positional-only, but arguments arrive by name; "
                "remove the '/'"
            )

        annotation: Any = Any
        if parameter.annotation is not MISSING and parameter.name not in skip:
            annotation = _resolve(parameter.annotation, namespace, f"{name}(): parameter '{parameter.name}'")
        arguments[parameter.name] = CallableParameter(parameter.name, annotation, parameter.default)
    return CallableSignature(name, arguments, takes_any, _resolve_return(signature, namespace, name))


def get_return_annotation(fn: Callable[..., Any]) -> Any:
    """Return the resolved return annotation of a callable, or `MISSING`."""
    name = get_callable_name(fn)
    return _resolve_return(_get_signature(fn, name), _build_namespace(fn), name)


def _resolve_return(signature: inspect.Signature, namespace: Mapping[str, Any], name: str) -> Any:
    if signature.return_annotation is MISSING:
        return MISSING
    return _resolve(signature.return_annotation, namespace, f"{name}(): the return value")


def _get_signature(fn: Callable[..., Any], name: str) -> inspect.Signature:
    try:
        return inspect.signature(fn)
    except NameError as error:
        raise DeclarationError(_describe_unresolvable(f"{name}()", error)) from error
    except (TypeError, ValueError) as error:
        raise DeclarationError(f"{name} has no readable signature; wrap it in a function with one") from error


def _find_bound_names(fn: Callable[..., Any]) -> set[str]:
    names: set[str] = set()
    while isinstance(fn, functools.partial):
        names |= fn.keywords.keys()
        fn = fn.func
    return names


def _build_namespace(fn: Callable[..., Any]) -> dict[str, Any]:
    """Return the names for the annotations of a callable.

    They come from its module, its closure and its type parameters.
    """
    inner: Any = unwrap_partial(fn)
    if inspect.isclass(inner):
        inner = inner.__init__
    elif not inspect.isroutine(inner):
        inner = type(inner).__call__
    inner = inspect.unwrap(getattr(inner, "__func__", inner), stop=lambda f: hasattr(f, "__signature__"))

    module = sys.modules.get(getattr(inner, "__module__", None) or "")
    names: dict[str, Any] = dict(getattr(inner, "__globals__", None) or vars(module or types))
    code = getattr(inner, "__code__", None)
    for name, cell in zip(getattr(code, "co_freevars", ()), getattr(inner, "__closure__", None) or (), strict=False):
        try:
            names[name] = cell.cell_contents
        except ValueError:
            # The enclosing function has not assigned this name yet.
            continue
    names.update({str(parameter): parameter for parameter in getattr(inner, "__type_params__", ())})
    return names


def _resolve(annotation: Any, namespace: Mapping[str, Any], where: str) -> Any:
    def holder() -> None: ...

    # get_type_hints also resolves names nested in list["Airport"], unlike evaluating the string.
    holder.__annotations__ = {"it": annotation}
    try:
        return typing.get_type_hints(holder, dict(namespace), include_extras=True)["it"]
    except (NameError, AttributeError, SyntaxError, TypeError) as error:
        raise DeclarationError(_describe_unresolvable(where, error, annotation)) from error


def _describe_unresolvable(where: str, error: Exception, annotation: Any = None) -> str:
    subject = "an annotation" if annotation is None else f"the annotation {annotation!r}"
    return (
        f"{where}: {subject} cannot be resolved ({error}); import the type at module level, "
        "outside 'if TYPE_CHECKING:', and define it outside functions"
    )


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
