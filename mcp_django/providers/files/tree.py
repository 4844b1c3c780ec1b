"""File tree as resources: a list, a template for all paths, and path completions."""

import functools
import hashlib
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol, Unpack
from urllib.parse import quote

from mcp_django.protocol.errors import InternalError
from mcp_django.providers.files.patterns import Entry, Selection, TooLarge
from mcp_django.providers.media_types import contents_of, guessed
from mcp_django.providers.metadata import DeclaredFiles, declared, reading, template_below
from mcp_django.schema import DeclarationError
from mcp_django.server.composition.provider import Provider
from mcp_django.server.context.context import Context
from mcp_django.server.primitives.base import Completion, Resource, ResourceTemplate

logger = logging.getLogger("mcp_django.providers")

SUGGESTED = 100
"""Maximum values of one completion (server/utilities/completion)."""
_PLAIN = "/!$&'()*+,;=:@~"
UNREADABLE = "The resource could not be read"


class Files(Protocol):
    """Access to files. Both methods block."""

    def read(self, parts: Sequence[str], most: int) -> bytes | None:
        """Return the content; None if the file is missing. Raises ContentTooLarge."""

    def scan(self, selection: Selection, most: int) -> list[Entry]:
        """List the first `max_files` served files."""


class FileTree(Provider):
    """Serves the files of a tree below a URI. Subclasses provide the source."""

    offers = frozenset({"resources", "completions"})

    def __init__(
        self,
        files: Files,
        selection: Selection,
        *,
        uri_prefix: str,
        list_limit: int,
        max_size: int,
        watch: bool,
        **options: Unpack[DeclaredFiles],
    ) -> None:
        self._files, self._selection = files, selection
        self._list_limit, self._max_size, self._watch = list_limit, max_size, watch
        for name, value in (("list_limit", list_limit), ("max_size", max_size)):
            if type(value) is not int or value < (0 if name == "list_limit" else 1):
                raise DeclarationError(f"{type(self).__name__}: {name}={value!r} is too small or not an integer")

        common = declared(type(self), options)
        uri = template_below(type(self), uri_prefix)
        self.uri_prefix = uri_prefix
        self._template = ResourceTemplate(
            **{"title": None, "description": "A file, by its path.", **common},
            name=uri_prefix,
            template=uri,
            convert=lambda variables: variables,
            handler=reading(self._read),
            source=type(self).__name__,
        )
        # Title and description of the whole would be wrong for a single file.
        self._common = {name: value for name, value in common.items() if name not in ("title", "description")}
        self._known: dict[str, tuple[Entry, Resource]] = {}

    @property
    def version(self) -> str:
        """Digest of paths, sizes and times of the listed files."""
        if not self._watch:
            return ""
        return hashlib.blake2b(repr(self._scan()).encode(), digest_size=8).hexdigest()

    async def resources(self, ctx: Context) -> Iterable[Resource]:
        entries = await ctx.server.executor.run(self._scan)
        known, found = self._known, {}
        for entry in entries:
            same = known.get(entry.path)
            found[entry.path] = same if same and same[0] == entry else (entry, self._resource(entry))
        # Replace at once: under WSGI other threads have their own loops.
        self._known = found
        return [resource for _, resource in found.values()]

    async def templates(self, ctx: Context) -> Iterable[ResourceTemplate]:
        return [self._template]

    async def resource(self, uri: str, ctx: Context) -> Resource | None:
        # Reading finds out if the file exists, and only callers with permission get there.
        variables = self._template.template.match(uri)
        if variables is None:
            return None
        path = str(variables["path"])
        return None if self._selection.parts(path) is None else self._resource(Entry(path))

    async def complete(
        self, target: str, argument: str, value: str, arguments: Mapping[str, str], ctx: Context
    ) -> Completion | Sequence[str] | None:
        if target != self._template.key or argument != "path":
            return None
        paths = [entry.path for entry in await ctx.server.executor.run(self._scan)]
        found = [path for path in paths if path.startswith(value)]
        found += [path for path in paths if value.casefold() in path.casefold() and not path.startswith(value)]
        return Completion(found[:SUGGESTED], total=len(found), has_more=len(found) > SUGGESTED)

    def _scan(self) -> list[Entry]:
        return self._files.scan(self._selection, self._list_limit) if self._list_limit else []

    def _resource(self, entry: Entry) -> Resource:
        return Resource(
            **self._common,
            uri=self.uri_prefix + quote(entry.path, safe=_PLAIN),
            name=entry.path,
            mime_type=guessed(entry.path),
            size=entry.size,
            handler=reading(functools.partial(self._read, entry.path)),
            source=type(self).__name__,
        )

    def _read(self, path: str) -> Any:
        parts = self._selection.parts(path)
        return None if parts is None else contents(lambda: self._files.read(parts, self._max_size), path)


def contents(read: Callable[[], bytes | None], name: str, mime_type: str | None = None) -> Any:
    """Read a file and return contents of a resource; None if the file is missing.

    Raises InternalError, with a text without local paths, if it is too large or cannot be read.
    """
    try:
        data = read()
    except TooLarge as problem:
        raise InternalError(f"The resource is larger than {problem} bytes, which is the limit") from None
    except Exception:
        logger.exception("%s could not be read", name)
        raise InternalError(UNREADABLE) from None
    return None if data is None else contents_of(data, mime_type or guessed(name))
