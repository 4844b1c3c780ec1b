"""Files of a Django storage as resources."""

import logging
from collections.abc import Sequence
from typing import Unpack

from django.core.exceptions import SuspiciousOperation
from django.core.files.storage import FileSystemStorage, Storage, storages

from mcp_django.providers.files.patterns import DEPTH, Entry, Selection, is_name
from mcp_django.providers.files.sandbox import VISITED, Rooted, capped
from mcp_django.providers.files.tree import Files, FileTree
from mcp_django.providers.metadata import MAX_SIZE, DeclaredFiles
from mcp_django.schema import DeclarationError

logger = logging.getLogger("mcp_django.providers")


class StorageProvider(FileTree):
    """The files of a storage below `prefix`, at `uri_prefix` followed by their path.

    `storage` is an alias in STORAGES or a storage. Files of a FileSystemStorage are opened as in DirectoryProvider,
    never through links. Other storages are accessed only by names without `..` and hidden parts. The options are those
    of DirectoryProvider. `watch` defaults to False, because it would list the storage once a second.
    """

    def __init__(
        self,
        storage: str | Storage = "default",
        pattern: str | Sequence[str] = "**/*",
        *,
        uri_prefix: str,
        prefix: str = "",
        recursive: bool = True,
        hidden: bool = False,
        list_limit: int = 1000,
        max_size: int = MAX_SIZE,
        watch: bool = False,
        **options: Unpack[DeclaredFiles],
    ) -> None:
        """Validate the options. Raises DeclarationError."""
        below = [part for part in prefix.split("/") if part]
        if not all(map(is_name, below)):
            raise DeclarationError(
                f"{type(self).__name__}: {prefix!r} is an invalid prefix; use names of directories without '..'"
            )

        super().__init__(
            _Stored(storage, below),
            Selection(pattern, recursive=recursive, hidden=hidden),
            uri_prefix=uri_prefix,
            list_limit=list_limit,
            max_size=max_size,
            watch=watch,
            **options,
        )


class _Stored:
    """The files of a storage, resolved at each use.

    Tests replace storages, and some storages are not ready at import.
    """

    def __init__(self, storage: str | Storage, below: Sequence[str]) -> None:
        self._storage, self._below = storage, tuple(below)

    def read(self, parts: Sequence[str], most: int) -> bytes | None:
        return self._files().read(parts, most)

    def scan(self, selection: Selection, most: int) -> list[Entry]:
        return self._files().scan(selection, most)

    def _files(self) -> Files:
        storage = storages[self._storage] if isinstance(self._storage, str) else self._storage
        # This includes a storage behind a LazyObject, such as default_storage.
        if isinstance(storage, FileSystemStorage) and _opens_plainly(storage):
            return Rooted(storage.location, self._below)
        return _Asked(storage, self._below)


class _Asked:
    """The files of any storage, accessed by its API."""

    def __init__(self, storage: Storage, below: Sequence[str]) -> None:
        self._storage, self._below = storage, below

    def read(self, parts: Sequence[str], most: int) -> bytes | None:
        try:
            with self._storage.open("/".join((*self._below, *parts)), "rb") as file:
                return capped(file.read, most)
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError, PermissionError, SuspiciousOperation):
            return None

    def scan(self, selection: Selection, most: int) -> list[Entry]:
        found: list[Entry] = []
        waiting, left = [""], VISITED
        while waiting and left > 0 and len(found) < most:
            prefix = waiting.pop()
            try:
                directories, files = self._storage.listdir("/".join((*self._below, *prefix.split("/")[:-1])))
            except (FileNotFoundError, NotADirectoryError, SuspiciousOperation):
                continue
            except NotImplementedError:
                logger.warning("%s cannot list its files; its list is empty", type(self._storage).__name__)
                return []
            left -= len(directories) + len(files)
            shown = sorted(name for name in files if selection.shows(name))
            found += [Entry(prefix + name) for name in shown if selection.fits(prefix + name)]
            if selection.recursive and prefix.count("/") + 1 < DEPTH:
                inner = sorted((name for name in directories if selection.shows(name)), reverse=True)
                waiting += [f"{prefix}{name}/" for name in inner]

        return found[:most]


def _opens_plainly(storage: Storage) -> bool:
    """Return True if the storage opens the file itself, without decryption."""
    kind = type(storage._wrapped) if hasattr(storage, "_wrapped") else type(storage)
    return getattr(kind, "_open", None) is vars(FileSystemStorage)["_open"]
