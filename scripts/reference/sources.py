"""Names of the code as Markdown: signatures and docstrings, read from the source.

Signatures come from the syntax tree, so that each version of Python writes the same page.
"""

import ast
import dataclasses
import functools
import inspect
import itertools
import re
import sys
import textwrap
from collections.abc import Iterator
from enum import EnumType
from pathlib import Path
from types import FunctionType
from typing import Any, Final, NamedTuple, get_type_hints, is_typeddict

ROOT: Final = Path(__file__).resolve().parent.parent.parent
MARK: Final = "<!-- Generated from the code by `make reference`. Do not edit. -->"
MAX_SIGNATURE_CHARACTERS = 100
SECTION = re.compile(r"(?m)^(Args|Raises|Returns):\n((?: {4}.*\n?)+)")
ENTRY = re.compile(r"^ {4}(\S[^:\n]*): ", re.MULTILINE)


class Member(NamedTuple):
    """A public member of a class."""

    name: str
    owner: type
    value: Any
    """The member as it is stored in the class, without descriptors' effects."""


@functools.cache
def parse_module(path: str) -> ast.Module:
    """Return the syntax tree of a file."""
    return ast.parse(Path(path).read_text(encoding="utf-8"))


def find_definition(value: Any) -> ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef:
    """Return the definition of a class or function."""
    value = inspect.unwrap(value)
    found: Any = parse_module(inspect.getsourcefile(value) or "")
    for name in value.__qualname__.split("."):
        kinds = (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
        # The last one: overloads come before the function itself.
        found = [node for node in ast.walk(found) if isinstance(node, kinds) and node.name == name][-1]
    definition: ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef = found
    return definition


def describe_attributes(cls: type) -> dict[str, tuple[str, str]]:
    """Map the attributes of a class body to their types and docstrings."""
    return _describe_assignments(find_definition(cls).body)


def describe_alias(module: str, name: str) -> tuple[str, str]:
    """Return the value and the docstring of a type alias or constant that a module imports from another one."""
    tree = parse_module(sys.modules[module].__file__ or "")
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and name in {alias.name for alias in node.names}:
            return describe_alias(node.module or "", name)
    assignments = [node for node in tree.body if isinstance(node, ast.Assign | ast.AnnAssign)]
    value = next(
        node.value
        for node in assignments
        if ast.unparse(node.target if isinstance(node, ast.AnnAssign) else node.targets[0]) == name
    )
    return ast.unparse(value) if value else "", _describe_assignments(tree.body)[name][1]


def describe_module(module: str) -> dict[str, str]:
    """Map the names that a module assigns to their docstrings."""
    body = parse_module(sys.modules[module].__file__ or "").body
    return {
        node.targets[0].id: following.value.value
        for node, following in itertools.pairwise(body)
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and _is_docstring(following)
    }


def _describe_assignments(body: list[ast.stmt]) -> dict[str, tuple[str, str]]:
    found: dict[str, tuple[str, str]] = {}

    for node, following in zip(body, [*body[1:], ast.Pass()], strict=True):
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            name, kind = node.target.id, ast.unparse(node.annotation)
        elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            name, kind = node.targets[0].id, ""
        else:
            continue
        text = following.value.value if _is_docstring(following) else ""
        found[name] = (kind.strip("'\""), " ".join(str(text).split()))

    return found


def _is_docstring(node: ast.AST) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


def write_signature(value: Any, name: str) -> str:
    """Return the signature of a class or function, over several lines if it is long."""
    if inspect.isclass(value):
        parameters, result, start = _list_constructor_parameters(value), "", "class "
    else:
        definition = find_definition(inspect.unwrap(value))
        assert not isinstance(definition, ast.ClassDef)
        parameters = _list_parameters(definition.args)
        result = f" -> {ast.unparse(definition.returns)}" if definition.returns else ""
        start = "async " if isinstance(definition, ast.AsyncFunctionDef) else ""

    line = f"{start}{name}({', '.join(parameters)}){result}"
    if len(line) <= MAX_SIGNATURE_CHARACTERS:
        return line
    inner = textwrap.fill(
        ", ".join(parameter.replace(" ", "\0") for parameter in parameters),
        MAX_SIGNATURE_CHARACTERS,
        initial_indent="    ",
        subsequent_indent="    ",
        break_long_words=False,
        break_on_hyphens=False,
    )
    return f"{start}{name}(\n{inner.replace(chr(0), ' ')},\n){result}"


def _list_parameters(arguments: ast.arguments) -> list[str]:
    """Write the parameters of a function, without `self` and `cls`."""
    positional = [*arguments.posonlyargs, *arguments.args]
    defaults: list[ast.expr | None] = [*[None] * (len(positional) - len(arguments.defaults)), *arguments.defaults]
    written = [_write_parameter(argument, default) for argument, default in zip(positional, defaults, strict=True)]
    if arguments.posonlyargs:
        written.insert(len(arguments.posonlyargs), "/")
    if positional and positional[0].arg in ("self", "cls"):
        del written[0]

    if arguments.vararg:
        written.append(f"*{_write_parameter(arguments.vararg, None)}")
    elif arguments.kwonlyargs:
        written.append("*")
    written += map(_write_parameter, arguments.kwonlyargs, arguments.kw_defaults)
    if arguments.kwarg:
        written.append(f"**{_write_parameter(arguments.kwarg, None)}")
    return written


def _write_parameter(argument: ast.arg, default: ast.expr | None) -> str:
    if argument.annotation is None:
        return argument.arg + (f"={ast.unparse(default)}" if default is not None else "")
    kind = ast.unparse(argument.annotation).strip("'\"")
    return f"{argument.arg}: {kind}" + (f" = {ast.unparse(default)}" if default is not None else "")


def _list_constructor_parameters(cls: type) -> list[str]:
    """Write the parameters of a class; those of a dataclass or a named tuple come from its fields."""
    if isinstance(cls, EnumType):
        return []
    if issubclass(cls, tuple):
        defaults: dict[str, Any] = getattr(cls, "_field_defaults", {})
        return [
            f"{name}: {kind}" + (f" = {_write_default(defaults[name])}" if name in defaults else "")
            for name, kind in _list_field_types(cls).items()
        ]
    owner = next((base for base in cls.__mro__ if "__init__" in vars(base)), object)
    if not owner.__module__.startswith("mcp_django"):
        return []
    if not dataclasses.is_dataclass(owner) or isinstance(_find_constructor(owner), ast.FunctionDef):
        constructor = _find_constructor(owner)
        return _list_parameters(constructor.args) if isinstance(constructor, ast.FunctionDef) else []

    kinds = {name: kind for base in reversed(owner.__mro__) for name, kind in _list_field_types(base).items()}
    written: list[str] = []
    for field in dataclasses.fields(owner):
        if not field.init:
            continue
        if field.kw_only and "*" not in written:
            written.append("*")
        has_default = field.default is not dataclasses.MISSING or field.default_factory is not dataclasses.MISSING
        default = _write_default(field.default) if field.default is not dataclasses.MISSING else "…"
        written.append(f"{field.name}: {kinds.get(field.name, 'Any')}" + (f" = {default}" if has_default else ""))
    return written


def _write_default(value: Any) -> str:
    return repr(value) if isinstance(value, str | bytes | int | float | bool | tuple | None) else "…"


def _list_field_types(cls: type) -> dict[str, str]:
    if not cls.__module__.startswith("mcp_django"):
        return {}
    return {name: kind for name, (kind, _) in describe_attributes(cls).items() if kind}


def _find_constructor(cls: type) -> ast.AST | None:
    return next((node for node in find_definition(cls).body if getattr(node, "name", "") == "__init__"), None)


def list_members(cls: type) -> Iterator[Member]:
    """Yield the public members that the package defines, with the class that defines each."""
    for name in sorted(dir(cls)):
        owner = next((base for base in cls.__mro__ if name in vars(base)), None)
        if not name.startswith("_") and owner is not None and owner.__module__.startswith("mcp_django"):
            yield Member(name, owner, inspect.getattr_static(cls, name))


def get_function(value: Any) -> FunctionType | None:
    """Return the function of a method; None for an attribute or a property."""
    function = value.__func__ if isinstance(value, classmethod | staticmethod) else value
    return inspect.unwrap(function) if inspect.isfunction(function) else None


def read_return_type(function: Any) -> str:
    """Return the annotation of a function's result, as the source has it."""
    definition = find_definition(function)
    assert not isinstance(definition, ast.ClassDef)
    return ast.unparse(definition.returns).strip("'\"") if definition.returns else ""


def list_options(function: Any) -> dict[str, str]:
    """Map the keys of a function's `**options` to their types, if a TypedDict describes them."""
    definition = find_definition(function)
    assert not isinstance(definition, ast.ClassDef)
    keywords = definition.args.kwarg
    if keywords is None or keywords.annotation is None or not ast.unparse(keywords.annotation).startswith("Unpack["):
        return {}
    options = get_type_hints(function, include_extras=True)[keywords.arg].__args__[0]
    return _list_keys(options)


def _list_keys(options: Any) -> dict[str, str]:
    """Map the keys of a TypedDict, inherited ones first, to their types."""
    definition = find_definition(options)
    assert isinstance(definition, ast.ClassDef)
    bases = [vars(sys.modules[options.__module__])[base.id] for base in definition.bases if isinstance(base, ast.Name)]
    keys = {key: kind for base in bases if is_typeddict(base) for key, kind in _list_keys(base).items()}
    return keys | {key: kind for key, (kind, _) in describe_attributes(options).items()}


def write_docstring(text: str | None) -> str:
    """Return a docstring as Markdown: sections become lists, and angle brackets are text."""
    markdown = SECTION.sub(_write_section, f"{inspect.cleandoc(text or '')}\n").strip()
    lines = [line if line.startswith("    ") else _escape(line) for line in markdown.replace("``", "`").splitlines()]
    return "\n".join(lines)


def _write_section(section: "re.Match[str]") -> str:
    entries = ENTRY.sub(lambda entry: f"- `{entry[1]}`: ", section[2])
    return f"{section[1]}:\n\n" + re.sub(r"(?m)^ {8}", "  ", entries)


def _escape(line: str) -> str:
    parts = line.split("`")
    return "`".join(part if number % 2 else part.replace("<", "&lt;") for number, part in enumerate(parts))


def escape_cell(text: str) -> str:
    """Return a text as a cell of a table."""
    return text.replace("|", "\\|").replace("\n", " ")
