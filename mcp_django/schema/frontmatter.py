"""Frontmatter of Markdown files: YAML between two lines of three hyphens, as values of JSON.

Scalars have the types of the YAML 1.2 core schema: `yes`, `2026-01-01` and `1_000` are texts, `0777` is a number.
Anchors, aliases, tags, merge keys and duplicate keys are refused, so no text expands or means two things. So are texts
and numbers that have no form in JSON. PyYAML is imported here.
"""

import contextlib
import functools
import re
from collections.abc import Iterator
from math import isfinite, nan
from typing import Any

from mcp_django.protocol.jsonrpc import is_unicode
from mcp_django.schema.failures import describe_failure

MAX_FRONTMATTER_BYTES = 64 * 1024
MAX_DEPTH = 32
MIN_INTEGER, MAX_INTEGER = -(2**53) + 1, 2**53 - 1
"""Integers that each JSON parser reads exactly."""
MAX_INTEGER_CHARACTERS = 64
"""Maximum length of an integer, with leading zeros.

The conversion of longer ones is slow, or refused by Python.
"""
MERGE_KEY = "<<"
"""Key that merges another mapping for parsers of YAML 1.1, and is a text for those of YAML 1.2."""
_BASES = {"0o": 8, "0x": 16}
_FENCE = re.compile(r"\A\ufeff?---\r?\n(?P<yaml>.*?)^---[ \t]*\r?$", re.DOTALL | re.MULTILINE)
_OTHER_BREAKS = re.compile("[\r\x85\u2028\u2029]")
_TAG = "tag:yaml.org,2002:"
_CORE_TYPES = (
    ("bool", r"true|True|TRUE|false|False|FALSE", "tTfF"),
    ("null", r"~|null|Null|NULL|", "~nN\0"),
    ("int", r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+", "-+0123456789"),
    (
        "float",
        r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)",
        "-+.0123456789",
    ),
)
"""Types of plain scalars, in order: name, pattern, first characters (YAML 1.2.2, section 10.3.2)."""


class FrontmatterError(ValueError):
    """A file without a readable frontmatter; the text has the reason."""


def parse_frontmatter(data: bytes) -> dict[str, Any]:
    """Return the frontmatter of a Markdown file as JSON.

    Raises FrontmatterError: missing, not UTF-8, not YAML, outside of JSON, or PyYAML is not installed.
    """
    with _convert_exceptions():
        return _Converter().convert_root(_compose(_extract(data)))


def find_ambiguous_values(data: bytes) -> list[str]:
    """Return plain values that YAML 1.1 types differently, such as `yes` and `2026-01-01`.

    Some clients read YAML 1.1, and refuse a skill whose values differ from its entry. Raises FrontmatterError.
    """
    with _convert_exceptions():
        core, old = _get_loader(), _import_yaml().SafeLoader
        return [
            node.value
            for node in _iterate_scalars(_compose(_extract(data)))
            if node.style is None
            and (
                _resolve(old, node.value) != _resolve(core, node.value)
                or (node.tag == f"{_TAG}int" and re.match(r"[-+]?0[0-9]", node.value))
            )
        ]


@contextlib.contextmanager
def _convert_exceptions() -> Iterator[None]:
    """Convert any exception to a FrontmatterError.

    So one file never affects those that are read with it.
    """
    try:
        yield
    except FrontmatterError:
        raise
    except Exception as error:
        raise FrontmatterError(f"the frontmatter cannot be read: {describe_failure(error)}") from error


def _extract(data: bytes) -> str:
    try:
        text = data.decode()
    except UnicodeError:
        raise FrontmatterError("the file is not UTF-8") from None
    matched = _FENCE.match(text)
    if matched is None:
        raise FrontmatterError("the file must begin with a frontmatter: YAML between two lines of '---'")
    if len(matched["yaml"]) > MAX_FRONTMATTER_BYTES:
        raise FrontmatterError(f"the frontmatter is longer than {MAX_FRONTMATTER_BYTES} characters")
    yaml_text = matched["yaml"].replace("\r\n", "\n")
    if _OTHER_BREAKS.search(yaml_text):
        raise FrontmatterError("the frontmatter has line breaks that YAML 1.1 and 1.2 read differently; use \\n")
    return yaml_text


def _compose(text: str) -> Any:
    """Return the node of the only document. Raises FrontmatterError."""
    yaml, loader = _import_yaml(), _get_loader()
    try:
        depth = 0
        # Events come first: composing recurses, and follows aliases.
        for event in yaml.parse(text, Loader=loader):
            depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
            if depth > MAX_DEPTH:
                raise FrontmatterError(f"the frontmatter is nested deeper than {MAX_DEPTH} levels")
            if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None) or getattr(event, "tag", None):
                raise FrontmatterError("anchors, aliases and tags are not allowed in a frontmatter")
        return yaml.compose(text, Loader=loader)
    except yaml.MarkedYAMLError as problem:
        line = f" (line {problem.problem_mark.line + 2})" if problem.problem_mark else ""
        raise FrontmatterError(f"the frontmatter is not YAML: {problem.problem}{line}") from None
    except yaml.YAMLError as problem:
        raise FrontmatterError(f"the frontmatter is not YAML: {str(problem)[:200]}") from None


class _Converter:
    """Conversion of nodes to values of JSON."""

    def convert_root(self, node: Any) -> dict[str, Any]:
        if getattr(node, "id", None) != "mapping":
            raise FrontmatterError("the frontmatter must be a mapping, such as 'name: refunds'")
        found: dict[str, Any] = self.convert(node)
        return found

    def convert(self, node: Any) -> Any:
        if node.id == "mapping":
            return self._convert_mapping(node)
        if node.id == "sequence":
            return [self.convert(one) for one in node.value]
        return _convert_scalar(node)

    def _convert_mapping(self, node: Any) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for key_node, value_node in node.value:
            key = self.convert(key_node) if key_node.id == "scalar" else None
            if not isinstance(key, str):
                raise FrontmatterError(f"a key must be a text (line {key_node.start_mark.line + 2}); quote it")
            if key == MERGE_KEY and key_node.style is None:
                raise FrontmatterError(f"merge keys are not allowed (line {key_node.start_mark.line + 2}); quote '<<'")
            if key in found:
                raise FrontmatterError(f"the key {key!r:.80} is used twice (line {key_node.start_mark.line + 2})")
            found[key] = self.convert(value_node)
        return found


def _convert_scalar(node: Any) -> Any:
    text, kind = node.value, node.tag.removeprefix(_TAG)
    if kind == "null":
        return None
    if kind == "bool":
        return text.lower() == "true"
    if kind not in ("int", "float"):
        if not is_unicode(text):
            raise FrontmatterError(f"{text!r:.80} has half of a character (line {node.start_mark.line + 2})")
        return text

    number = _parse_float(text) if kind == "float" else _parse_integer(text)
    if number is None:
        raise FrontmatterError(f"{text!r:.80} is not a number of JSON (line {node.start_mark.line + 2}); quote it")
    return number


def _parse_float(text: str) -> float | None:
    """Return a number; None if JSON has none for it."""
    number = float(text) if text[-1] in ".0123456789" else nan
    return number if isfinite(number) else None


def _parse_integer(text: str) -> int | None:
    """Return an integer; None if it is too large for JSON, or too long to find out."""
    if len(text) > MAX_INTEGER_CHARACTERS:
        return None
    integer = int(text, _BASES.get(text[:2], 10))
    return integer if MIN_INTEGER <= integer <= MAX_INTEGER else None


def _iterate_scalars(node: Any) -> Iterator[Any]:
    """Yield the values of a node; keys are texts, and compared as such."""
    if node.id == "scalar":
        yield node
    for child in node.value if node.id != "scalar" else ():
        yield from _iterate_scalars(child[1] if node.id == "mapping" else child)


def _resolve(loader: Any, text: str) -> str:
    """Return the tag that a loader gives to a plain scalar."""
    resolvers = loader.yaml_implicit_resolvers
    for tag, pattern in [*resolvers.get(text[:1], ()), *resolvers.get(None, ())]:
        if pattern.match(text):
            return str(tag)
    return f"{_TAG}str"


@functools.cache
def _get_loader() -> Any:
    yaml = _import_yaml()

    # The parser in C and the one in Python differ in details; a frontmatter is short.
    class CoreLoader(yaml.SafeLoader):  # type: ignore[misc, name-defined]
        yaml_implicit_resolvers: dict[str, Any] = {}

    for name, pattern, first in _CORE_TYPES:
        starts = [char if char != "\0" else "" for char in first]
        CoreLoader.add_implicit_resolver(_TAG + name, re.compile(rf"^(?:{pattern})$"), starts)
    return CoreLoader


def _import_yaml() -> Any:
    try:
        import yaml
    except ImportError:
        raise FrontmatterError(
            "skills need PyYAML; install it with pip install 'mcp-django-channels[skills]'"
        ) from None
    return yaml
