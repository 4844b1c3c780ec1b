"""OpenAPI documents: loaded from a JSON or YAML text, a file, or a dict.

The content is untrusted. Its size, its depth and the expansion of its YAML aliases are limited before anything else
reads it. References to other documents are never fetched.
"""

import functools
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import isfinite
from pathlib import Path
from typing import Any

from mcp_django.extensions.calls import jsonrpc
from mcp_django.extensions.errors import DeclarationError
from mcp_django.extensions.schemas import to_json_schema

MAX_DOCUMENT_BYTES = 32 * 1024 * 1024
"""Maximum bytes of a document's text."""
MAX_VALUES = 1_000_000
"""Maximum values of a document, with YAML aliases expanded."""
MAX_DEPTH = 128
MIN_INTEGER, MAX_INTEGER = -(2**63), 2**64 - 1
MAX_MERGED_ENTRIES = 10_000
"""Maximum entries that one `<<` of YAML may add; `MAX_VALUES` limits the total."""
DocumentSource = str | Path | Mapping[str, Any]
_VERSION = re.compile(r"3\.[01]\.\d+(-[\w.]+)?")
_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.\-]+://\S*")


@dataclass(frozen=True, slots=True, eq=False)
class OpenAPIDocument:
    """A loaded document with bounded size and depth."""

    root: dict[str, Any]
    name: str
    """Name of the document in messages."""
    is_31: bool
    """True for OpenAPI 3.1, whose schemas are JSON Schema; False for 3.0."""

    @property
    def title(self) -> str:
        info = self.root.get("info")
        return str(info.get("title", "")) if isinstance(info, dict) else ""


def load_document(source: DocumentSource, label: str) -> OpenAPIDocument:
    """Load a document from a dict, a JSON or YAML text, or a file.

    A file is a Path, or a text of one line with its path.

    Raises:
        DeclarationError: with `label`: missing file, neither JSON nor YAML, too large, or not OpenAPI 3.0 or 3.1.
    """
    untyped_source: Any = source
    if isinstance(untyped_source, Mapping):
        return _check_document(to_json_schema(untyped_source), "the document", label)
    if isinstance(untyped_source, str) and _URL.fullmatch(untyped_source.strip()):
        raise DeclarationError(
            f"{label}: a document is not fetched; download {untyped_source.strip()[:200]} and give its path"
        )
    if not isinstance(untyped_source, str | Path):
        raise DeclarationError(f"{label}: a document is a dict, a text or a path, not {type(untyped_source).__name__}")
    if isinstance(untyped_source, str) and ("\n" in untyped_source.strip() or untyped_source.lstrip().startswith("{")):
        return _check_document(_parse(untyped_source.encode(), label, "the document"), "the document", label)

    path = Path(untyped_source)
    try:
        with path.open("rb") as file:
            content = file.read(MAX_DOCUMENT_BYTES + 1)
    except OSError as problem:
        raise DeclarationError(f"{label}: {path} cannot be read: {problem.strerror or problem}") from None
    return _check_document(_parse(content, label, path.name), path.name, label)


def _parse(text: bytes, label: str, name: str) -> Any:
    if len(text) > MAX_DOCUMENT_BYTES:
        raise DeclarationError(f"{label}: {name} is larger than {MAX_DOCUMENT_BYTES // 1024 // 1024} MiB")
    if text.lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"{"):
        try:
            return jsonrpc.loads(text.removeprefix(b"\xef\xbb\xbf"))
        except ValueError as problem:
            raise DeclarationError(f"{label}: {name} is not JSON: {problem}") from None
    return _parse_yaml(text, label, name)


def _parse_yaml(text: bytes, label: str, name: str) -> Any:
    try:
        import yaml
    except ImportError:
        raise DeclarationError(
            f"{label}: {name} is not JSON, and YAML needs PyYAML; install it with "
            "pip install 'mcp-django-channels[openapi]', or give the document as JSON"
        ) from None
    try:
        _check_depth(yaml.parse(text, Loader=_get_yaml_loader()), label, name)
        return yaml.load(text, Loader=_get_yaml_loader())  # noqa: S506 - a SafeLoader with fewer types
    except yaml.MarkedYAMLError as problem:
        line = f" (line {problem.problem_mark.line + 1})" if problem.problem_mark else ""
        raise DeclarationError(f"{label}: {name} is neither JSON nor YAML: {problem.problem}{line}") from None
    except (yaml.YAMLError, ValueError, RecursionError) as problem:
        reason = "nested too deeply" if isinstance(problem, RecursionError) else str(problem)[:200]
        raise DeclarationError(f"{label}: {name} is neither JSON nor YAML: {reason}") from None


def _check_depth(events: Iterable[Any], label: str, name: str) -> None:
    """Raise DeclarationError for deep nesting; the C composer recurses without limit."""
    depth = 0
    for event in events:
        kind = type(event).__name__
        depth += kind in ("MappingStartEvent", "SequenceStartEvent")
        depth -= kind in ("MappingEndEvent", "SequenceEndEvent")
        if depth > MAX_DEPTH:
            raise DeclarationError(f"{label}: {name} is nested deeper than {MAX_DEPTH} levels")


@functools.cache
def _get_yaml_loader() -> Any:
    """Return a safe YAML loader that reads scalars like JSON (YAML 1.2, 10.2).

    `no` and dates are read as texts.
    """
    import yaml

    # Use the C parser if available: documents of megabytes would take a minute otherwise.
    class Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
        yaml_implicit_resolvers: dict[str, Any] = {}

        merged = 0

        def flatten_mapping(self, node: Any) -> None:
            before = len(node.value)
            super().flatten_mapping(node)
            self.merged += max(0, len(node.value) - before)
            if len(node.value) > MAX_MERGED_ENTRIES or self.merged > MAX_VALUES:
                raise yaml.constructor.ConstructorError(None, None, "a mapping merges too much", node.start_mark)

    for tag, pattern, first in (
        ("bool", r"true|True|TRUE|false|False|FALSE", "tTfF"),
        ("null", r"~|null|Null|NULL|", "~nN\0"),
        ("int", r"[-+]?(0|[1-9][0-9]*)", "-+0123456789"),
        ("float", r"[-+]?(\.[0-9]+|(0|[1-9][0-9]*)(\.[0-9]*)?)([eE][-+]?[0-9]+)?", "-+.0123456789"),
        ("merge", r"<<", "<"),
    ):
        starts = [char if char != "\0" else "" for char in first]
        Loader.add_implicit_resolver(f"tag:yaml.org,2002:{tag}", re.compile(rf"^(?:{pattern})$"), starts)
    Loader.add_constructor("tag:yaml.org,2002:int", lambda loader, node: int(node.value))
    Loader.add_constructor("tag:yaml.org,2002:float", lambda loader, node: float(node.value))
    return Loader


def _check_document(value: Any, name: str, label: str) -> OpenAPIDocument:
    if not isinstance(value, Mapping):
        raise DeclarationError(f"{label}: {name} is not an OpenAPI document: its root must be an object")
    root = _copy_plain(value, name, label)
    if "swagger" in root:
        raise DeclarationError(
            f"{label}: {name} is of OpenAPI {str(root['swagger'])[:20]} (Swagger); convert it to 3.0 or 3.1 first"
        )
    version = root.get("openapi")
    if not isinstance(version, str) or not _VERSION.fullmatch(version):
        raise DeclarationError(f"{label}: {name} has openapi: {str(version)[:20]!r}; use 3.0 or 3.1")
    return OpenAPIDocument(root, name, version.startswith("3.1"))


def _copy_plain(source: Mapping[str, Any], name: str, label: str) -> dict[str, Any]:
    """Copy the document into dicts, lists and scalars with text keys; share nothing."""
    remaining_values = MAX_VALUES

    def copied(value: Any, depth: int) -> Any:
        nonlocal remaining_values
        remaining_values -= 1
        if remaining_values < 0 or depth > MAX_DEPTH:
            much = (
                f"holds more than {MAX_VALUES} values"
                if remaining_values < 0
                else f"is nested deeper than {MAX_DEPTH} levels"
            )
            raise DeclarationError(f"{label}: {name} {much}, or refers to itself by aliases")
        if isinstance(value, Mapping):
            return {_convert_key(key): copied(inner, depth + 1) for key, inner in value.items()}
        if isinstance(value, list | tuple):
            return [copied(inner, depth + 1) for inner in value]
        if isinstance(value, int) and not MIN_INTEGER <= value <= MAX_INTEGER:
            # JSON has no larger integers here.
            value = float(value) if abs(value) < 10**300 else str(value.bit_length())
        if value is None or isinstance(value, str | int) or (isinstance(value, float) and isfinite(value)):
            return value

        return str(value)  # Lazy texts, and values of other types in a dict.

    root: dict[str, Any] = copied(source, 0)
    return root


def _convert_key(key: Any) -> str:
    """Convert a key to text; YAML reads statuses as numbers."""
    if isinstance(key, bool):
        return "true" if key else "false"
    return str(key)
