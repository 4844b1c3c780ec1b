"""Files and directories of this machine as resources."""

import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Unpack

from mcp_django.providers.files.patterns import FileSelection
from mcp_django.providers.files.sandbox import DirectorySandbox
from mcp_django.providers.files.tree import FileTree, read_contents
from mcp_django.providers.media_types import guess_media_type
from mcp_django.providers.metadata import DEFAULT_MAX_BYTES, ProvidedFileOptions, build_static_resource, check_options
from mcp_django.schema import DeclarationError
from mcp_django.server.composition.provider import Provider
from mcp_django.server.context.context import Context
from mcp_django.server.primitives.base import Resource


class FileResource(Provider):
    """A single file at one URI.

    `mime_type` defaults to a guess by the file's name. The content is text if it is UTF-8, else a blob. The file itself
    must not be a symbolic link. A missing file, or one larger than `max_size` bytes, is detected when it is read.
    """

    offers = frozenset({"resources"})

    def __init__(
        self,
        path: str | os.PathLike[str],
        uri: str,
        *,
        name: str | None = None,
        mime_type: str | None = None,
        max_size: int = DEFAULT_MAX_BYTES,
        **options: Unpack[ProvidedFileOptions],
    ) -> None:
        """Validate the options. Raises DeclarationError for an invalid URI or option."""
        absolute_path = Path(path).absolute()
        self._sandbox = DirectorySandbox(absolute_path.parent)
        self._name = absolute_path.name
        self._max_size = max_size
        if not self._name:
            raise DeclarationError("FileResource: the path has no file name")
        self._mime_type = mime_type or guess_media_type(self._name)
        self._resource = build_static_resource(
            type(self),
            uri,
            self._read,
            name=name or self._name,
            mime_type=self._mime_type,
            **check_options(type(self), options),
        )

    async def resources(self, ctx: Context) -> Iterable[Resource]:
        return [self._resource]

    def _read(self) -> Any:
        return read_contents(lambda: self._sandbox.read([self._name], self._max_size), self._name, self._mime_type)


class DirectoryProvider(FileTree):
    """The files of a directory, at `uri_prefix` followed by their path.

    `pattern` (one or several) selects files: `*` matches within a name, `**` any number of directories. Other files are
    not served. Without `recursive` only files of the directory itself are served, and names with a leading dot only
    with `hidden`. Symbolic links, devices and pipes are never served. Lists and completions contain the first
    `list_limit` files; every file can be read by the template. `max_size` is in bytes. With `watch`, subscribed clients
    are notified when the list changes, including the size or time of a file. For this the directory is scanned once a
    second.
    """

    def __init__(
        self,
        root: str | os.PathLike[str],
        pattern: str | Sequence[str] = "**/*",
        *,
        uri_prefix: str,
        recursive: bool = True,
        hidden: bool = False,
        list_limit: int = 1000,
        max_size: int = DEFAULT_MAX_BYTES,
        watch: bool = True,
        **options: Unpack[ProvidedFileOptions],
    ) -> None:
        """Validate the options. Raises DeclarationError."""
        super().__init__(
            DirectorySandbox(root),
            FileSelection(pattern, recursive=recursive, hidden=hidden),
            uri_prefix=uri_prefix,
            list_limit=list_limit,
            max_size=max_size,
            watch=watch,
            **options,
        )
