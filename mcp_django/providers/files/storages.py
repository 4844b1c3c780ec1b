"""Files of a Django storage as resources."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Unpack

from django.core.exceptions import SuspiciousOperation
from django.core.files.storage import FileSystemStorage, Storage, storages

from mcp_django.protocol.log_text import get_logger
from mcp_django.providers.files.patterns import MAX_PATH_DEPTH, FileEntry, FileSelection, is_safe_name
from mcp_django.providers.files.sandbox import MAX_VISITED_NAMES, DirectorySandbox, read_limited
from mcp_django.providers.files.tree import FileSource, FileTree
from mcp_django.providers.metadata import DEFAULT_MAX_BYTES, ProvidedFileOptions
from mcp_django.schema import DeclarationError

logger = get_logger("mcp_django.providers")


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
        max_size: int = DEFAULT_MAX_BYTES,
        watch: bool = False,
        **options: Unpack[ProvidedFileOptions],
    ) -> None:
        """Validate the options. Raises DeclarationError."""
        subdirectories = [part for part in prefix.split("/") if part]
        if not all(map(is_safe_name, subdirectories)):
            raise DeclarationError(
                f"{type(self).__name__}: {prefix!r} is an invalid prefix; use names of directories without '..'"
            )

        super().__init__(
            StorageFiles(storage, subdirectories),
            FileSelection(pattern, recursive=recursive, hidden=hidden),
            uri_prefix=uri_prefix,
            list_limit=list_limit,
            max_size=max_size,
            watch=watch,
            **options,
        )


@dataclass(frozen=True, slots=True)
class StorageFiles:
    """The files of a storage, resolved at each use.

    Tests replace storages, and some storages are not ready at import.
    """

    _storage: str | Storage
    _subdirectories: Sequence[str]

    def read(self, parts: Sequence[str], max_bytes: int) -> bytes | None:
        return self._get_files().read(parts, max_bytes)

    def scan(self, selection: FileSelection, max_files: int) -> list[FileEntry]:
        return self._get_files().scan(selection, max_files)

    def _get_files(self) -> FileSource:
        storage = storages[self._storage] if isinstance(self._storage, str) else self._storage
        # This includes a storage behind a LazyObject, such as default_storage.
        if isinstance(storage, FileSystemStorage) and _opens_files_directly(storage):
            return DirectorySandbox(storage.location, self._subdirectories)
        return _StorageAPIFiles(storage, self._subdirectories)


@dataclass(frozen=True, slots=True)
class _StorageAPIFiles:
    """The files of any storage, accessed by its API."""

    _storage: Storage
    _subdirectories: Sequence[str]

    def read(self, parts: Sequence[str], max_bytes: int) -> bytes | None:
        try:
            with self._storage.open("/".join((*self._subdirectories, *parts)), "rb") as file:
                return read_limited(file.read, max_bytes)
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError, PermissionError, SuspiciousOperation):
            return None

    def scan(self, selection: FileSelection, max_files: int) -> list[FileEntry]:
        entries: list[FileEntry] = []
        pending_prefixes, remaining_names = [""], MAX_VISITED_NAMES
        while pending_prefixes and remaining_names > 0 and len(entries) < max_files:
            prefix = pending_prefixes.pop()
            try:
                directories, files = self._storage.listdir("/".join((*self._subdirectories, *prefix.split("/")[:-1])))
            except (FileNotFoundError, NotADirectoryError, SuspiciousOperation):
                continue
            except NotImplementedError:
                logger.warning("%s cannot list its files; its list is empty", type(self._storage).__name__)
                return []
            remaining_names -= len(directories) + len(files)
            served_names = sorted(name for name in files if selection.is_name_served(name))
            entries += [FileEntry(prefix + name) for name in served_names if selection.matches_pattern(prefix + name)]
            if selection.recursive and prefix.count("/") + 1 < MAX_PATH_DEPTH:
                inner = sorted((name for name in directories if selection.is_name_served(name)), reverse=True)
                pending_prefixes += [f"{prefix}{name}/" for name in inner]

        return entries[:max_files]


def _opens_files_directly(storage: Storage) -> bool:
    """Return True if the storage opens the file itself, without decryption."""
    kind = type(storage._wrapped) if hasattr(storage, "_wrapped") else type(storage)
    return getattr(kind, "_open", None) is vars(FileSystemStorage)["_open"]
