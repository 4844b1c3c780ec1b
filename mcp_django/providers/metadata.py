"""Options of provided resources, such as title and permission; resources by path."""

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypedDict

from mcp_django.protocol.types import Annotations, Icon
from mcp_django.protocol.uri import UriTemplate, quote_path
from mcp_django.providers.media_types import guess_media_type
from mcp_django.schema import DeclarationError
from mcp_django.server.composition.provider import Provider
from mcp_django.server.context.context import Context
from mcp_django.server.injection.handler import Handler
from mcp_django.server.primitives.base import Permission, Resource, ResourceTemplate
from mcp_django.server.primitives.decorators import check_option_names, parse_timeout

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
    check_option_names(owner.__name__, options, ProvidedFileOptions)
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


class PathProvider(Provider):
    """Provider of resources by their path below a URI prefix.

    Subclasses have a method that reads a path, on the event loop or blocking.
    """

    def __init__(
        self, uri_prefix: str, read: Callable[[str], Any], options: Mapping[str, Any], *, description: str
    ) -> None:
        """Build the template of all paths. Raises DeclarationError for invalid options."""
        common = check_options(type(self), options)
        self.uri_prefix = uri_prefix
        self._read_path = read
        self._template = ResourceTemplate(
            **{"description": description, **common},
            name=uri_prefix,
            template=build_path_template(type(self), uri_prefix),
            convert=lambda variables: variables,
            handler=build_read_handler(read),
            source=type(self).__name__,
        )
        # Title and description of the whole would be wrong for a single path.
        self._common = {name: value for name, value in common.items() if name not in ("title", "description")}

    async def templates(self, ctx: Context) -> Iterable[ResourceTemplate]:
        return [self._template]

    def _match_path(self, uri: str) -> str | None:
        """Return the path of a URI; None for other URIs."""
        variables = self._template.template.match(uri)
        return None if variables is None else str(variables["path"])

    def _build_path_resource(self, path: str, size: int | None = None) -> Resource:
        """Build a resource whose name and URI are from its path."""
        return Resource(
            **self._common,
            uri=self.uri_prefix + quote_path(path),
            name=path,
            mime_type=guess_media_type(path),
            size=size,
            handler=build_read_handler(functools.partial(self._read_path, path)),
            source=type(self).__name__,
        )
