"""Options of provided resources, such as title and permission; resource builders."""

import difflib
from collections.abc import Mapping, Sequence
from typing import Any, TypedDict, get_type_hints

from mcp_django.protocol.types import Annotations, Icon
from mcp_django.protocol.uri import UriTemplate
from mcp_django.schema import DeclarationError
from mcp_django.server.injection.handler import Handler
from mcp_django.server.primitives.base import Permission, Resource
from mcp_django.server.primitives.decorators import parse_timeout

DEFAULT_MAX_BYTES = 1024 * 1024
"""Default maximum bytes of one resource."""


class ProvidedResourceOptions(TypedDict, total=False):
    """Options of all providers, as in `@resource`; they apply to all their resources."""

    title: str
    description: str
    icons: Sequence[Icon]
    tags: Sequence[str]
    meta: Mapping[str, Any]
    permission: Permission
    scopes: Sequence[str]
    metadata: Mapping[str, Any]
    annotations: Annotations


class ProvidedFileOptions(ProvidedResourceOptions, total=False):
    """Options of blocking providers; `timeout` in seconds, None for the default."""

    timeout: float | None


def check_options(owner: type, options: Mapping[str, Any]) -> dict[str, Any]:
    """Validate options and return the arguments of primitives.

    Raises DeclarationError for unknown names: a misspelt `permission` must not open a guarded resource.
    """
    known = get_type_hints(ProvidedFileOptions)
    for name in sorted(options.keys() - known.keys()):
        matches = difflib.get_close_matches(name, known, n=1)
        hint = f"; did you mean {matches[0]!r}?" if matches else ""
        raise DeclarationError(f"{owner.__name__}: unknown option {name!r}{hint}")
    for name in ("icons", "tags", "scopes"):
        if isinstance(options.get(name), str):
            raise DeclarationError(f"{owner.__name__}: {name} is a list; write {name}=[{options[name]!r}]")
    parse_timeout(owner, options.get("timeout"))
    return {**options, **{name: tuple(options[name]) for name in ("icons", "tags", "scopes") if name in options}}


def build_path_template(owner: type, uri_prefix: str) -> UriTemplate:
    """Build the template of all paths below a prefix, such as `docs://{+path}`.

    Raises DeclarationError for an invalid prefix.
    """
    scheme, colon, rest = uri_prefix.partition(":")
    if not colon or not scheme.isascii() or not scheme[:1].isalpha() or not rest.endswith("/") or "{" in rest:
        raise DeclarationError(f"{owner.__name__}: {uri_prefix!r} must begin with a scheme and end with a slash")
    try:
        return UriTemplate(f"{uri_prefix}{{+path}}")
    except ValueError as problem:
        raise DeclarationError(f"{owner.__name__}: {problem}") from None


def build_static_resource(owner: type, uri: str, read: Any, **options: Any) -> Resource:
    """Build a resource whose function has no arguments. Raises DeclarationError."""
    try:
        is_plain = UriTemplate(uri).is_static
    except ValueError as problem:
        raise DeclarationError(f"{owner.__name__}: {problem}") from None
    if not is_plain or not uri.partition(":")[1]:
        raise DeclarationError(f"{owner.__name__}: {uri!r} is an invalid URI; write it like 'docs://readme'")
    return Resource(uri=uri, handler=build_read_handler(read), source=owner.__name__, **options)


def build_read_handler(read: Any) -> Handler:
    """Build the handler of a resource, which runs without a transaction."""
    return Handler(read, atomic=())
