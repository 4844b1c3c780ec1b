"""File tree as resources: a list, a template for all paths, and path completions."""

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol, Unpack

from mcp_django.protocol.errors import InternalError
from mcp_django.protocol.log_text import get_logger
from mcp_django.providers.files.patterns import ContentTooLarge, FileEntry, FileSelection
from mcp_django.providers.media_types import build_contents, guess_media_type
from mcp_django.providers.metadata import PathProvider, ProvidedFileOptions
from mcp_django.schema import DeclarationError
from mcp_django.server.context.context import Context
from mcp_django.server.primitives.base import Completion, Resource

logger = get_logger("mcp_django.providers")

MAX_COMPLETIONS = 100
"""Maximum values of one completion (server/utilities/completion)."""
UNREADABLE_MESSAGE = "The resource could not be read"


class FileSource(Protocol):
    """Access to files. Both methods block."""

    def read(self, parts: Sequence[str], max_bytes: int) -> bytes | None:
        """Return the content; None if the file is missing. Raises ContentTooLarge."""

    def scan(self, selection: FileSelection, max_files: int) -> list[FileEntry]:
        """List the first `max_files` served files."""


class FileTree(PathProvider):
    """Serves the files of a tree below a URI. Subclasses provide the source."""

    offers = frozenset({"resources", "completions"})

    def __init__(
        self,
        files: FileSource,
        selection: FileSelection,
        *,
        uri_prefix: str,
        list_limit: int,
        max_size: int,
        watch: bool,
        **options: Unpack[ProvidedFileOptions],
    ) -> None:
        self._files = files
        self._selection = selection
        self._list_limit = list_limit
        self._max_size = max_size
        self._watch = watch
        for name, value in (("list_limit", list_limit), ("max_size", max_size)):
            if type(value) is not int or value < (0 if name == "list_limit" else 1):
                raise DeclarationError(f"{type(self).__name__}: {name}={value!r} is too small or not an integer")

        super().__init__(uri_prefix, self._read, options, description="A file, by its path.")
        self._resource_cache: dict[str, tuple[FileEntry, Resource]] = {}

    @property
    def version(self) -> str:
        """Digest of paths, sizes and times of the listed files."""
        if not self._watch:
            return ""
        return hashlib.blake2b(repr(self._scan()).encode(), digest_size=8).hexdigest()

    async def resources(self, ctx: Context) -> Iterable[Resource]:
        entries = await ctx.server.ports.executor.run(self._scan)
        cached, updated = self._resource_cache, {}
        for entry in entries:
            entry_and_resource = cached.get(entry.path)
            updated[entry.path] = (
                entry_and_resource
                if entry_and_resource and entry_and_resource[0] == entry
                else (entry, self._build_path_resource(entry.path, entry.size))
            )
        # Replace at once: under WSGI other threads have their own loops.
        self._resource_cache = updated
        return [resource for _, resource in updated.values()]

    async def resource(self, uri: str, ctx: Context) -> Resource | None:
        # Reading finds out if the file exists, and only callers with permission get there.
        path = self._match_path(uri)
        return None if path is None or self._selection.split_path(path) is None else self._build_path_resource(path)

    async def complete(
        self, target: str, argument: str, value: str, arguments: Mapping[str, str], ctx: Context
    ) -> Completion | Sequence[str] | None:
        if target != self._template.key or argument != "path":
            return None
        paths = [entry.path for entry in await ctx.server.ports.executor.run(self._scan)]
        matches = [path for path in paths if path.startswith(value)]
        matches += [path for path in paths if value.casefold() in path.casefold() and not path.startswith(value)]
        return Completion(matches[:MAX_COMPLETIONS], total=len(matches), has_more=len(matches) > MAX_COMPLETIONS)

    def _scan(self) -> list[FileEntry]:
        return self._files.scan(self._selection, self._list_limit) if self._list_limit else []

    def _read(self, path: str) -> Any:
        parts = self._selection.split_path(path)
        return None if parts is None else read_contents(lambda: self._files.read(parts, self._max_size), path)


def read_contents(read: Callable[[], bytes | None], name: str, mime_type: str | None = None) -> Any:
    """Read a file and return contents of a resource; None if the file is missing.

    Raises InternalError, with a text without local paths, if it is too large or cannot be read.
    """
    try:
        data = read()
    except ContentTooLarge as error:
        raise InternalError(f"The resource is larger than {error} bytes, which is the limit") from None
    except Exception:
        logger.exception("%s could not be read", name)
        raise InternalError(UNREADABLE_MESSAGE) from None
    return None if data is None else build_contents(data, mime_type or guess_media_type(name))
