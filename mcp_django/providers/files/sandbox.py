"""Directory sandbox: read files below a root that no path can leave.

A path is opened name by name, each relative to the open directory (`dir_fd`) and never through a symbolic link
(`O_NOFOLLOW`). The checked file is therefore the opened one, even if a name is replaced by a link in between
(openat(2); RESOLVE_BENEATH and RESOLVE_NO_SYMLINKS of openat2(2) on Linux). Only the root itself may be reached through
links, because the project chose it.
"""

import errno
import os
import stat
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

from django.core.exceptions import ImproperlyConfigured

from mcp_django.protocol.log_text import get_logger
from mcp_django.providers.files.patterns import MAX_PATH_DEPTH, ContentTooLarge, FileEntry, FileSelection

logger = get_logger("mcp_django.providers")

READ_CHUNK_BYTES = 64 * 1024
MAX_VISITED_NAMES = 50_000
"""Maximum number of names that one scan reads; further files are not listed."""
_HAS_OPENAT = os.open in os.supports_dir_fd and os.stat in os.supports_dir_fd and hasattr(os, "O_NOFOLLOW")
_ROOT_FLAGS = os.O_RDONLY | getattr(os, "O_DIRECTORY", 0) | getattr(os, "O_CLOEXEC", 0)
_DIRECTORY_FLAGS = _ROOT_FLAGS | getattr(os, "O_NOFOLLOW", 0)
# Non-blocking, in case a pipe replaces the file after the check.
_FILE_FLAGS = (
    os.O_RDONLY
    | getattr(os, "O_NOFOLLOW", 0)
    | getattr(os, "O_NONBLOCK", 0)
    | getattr(os, "O_NOCTTY", 0)
    | getattr(os, "O_CLOEXEC", 0)
)
_ABSENT_ERRORS = frozenset(
    {errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.ELOOP, errno.EACCES, errno.EPERM, errno.ENXIO}
    | {errno.ENAMETOOLONG, errno.EINVAL, errno.ESTALE}
)
"""Errors that mean "not found" to a client: missing, not a file, or not readable."""


class DirectorySandbox:
    """The files below `root`."""

    def __init__(self, root: str | os.PathLike[str], subdirectories: Sequence[str] = ()) -> None:
        """Set the root and `subdirectories` below it, to which paths are relative.

        The subdirectories must not be links.
        """
        if not _HAS_OPENAT:
            raise ImproperlyConfigured("Directories cannot be served safely on this system, which has no openat()")
        self._root = Path(root).absolute()
        self._subdirectories = tuple(subdirectories)

    def read(self, parts: Sequence[str], max_bytes: int) -> bytes | None:
        """Return the content of a regular file; None if it is missing or not readable.

        Raises ContentTooLarge above `max_bytes` bytes, whatever size the file reports, and OSError for disk errors.
        """
        try:
            return self._read(parts, max_bytes)
        except OSError as problem:
            if problem.errno in (errno.EACCES, errno.EPERM):
                logger.warning("A file below %s may not be read by this process: %s", self._root, "/".join(parts))
            if problem.errno in _ABSENT_ERRORS:
                return None
            raise

    def _read(self, parts: Sequence[str], max_bytes: int) -> bytes | None:
        *directories, name = parts
        directory_fd = self._open(directories)
        try:
            # Check the type first, because opening a device or a pipe may have effects.
            if not stat.S_ISREG(os.stat(name, dir_fd=directory_fd, follow_symlinks=False).st_mode):
                return None
            fd = os.open(name, _FILE_FLAGS, dir_fd=directory_fd)
        finally:
            os.close(directory_fd)
        with os.fdopen(fd, "rb", buffering=0) as file:
            if not stat.S_ISREG(os.fstat(fd).st_mode):
                return None
            return read_limited(file.read, max_bytes)

    def scan(self, selection: FileSelection, max_files: int) -> list[FileEntry]:
        """List the first `max_files` served files, sorted by path within each directory."""
        directory_scan = _DirectoryScan(selection, max_files)
        try:
            directory_scan.scan_directory(self._open(()), "")
        except OSError as problem:
            if problem.errno not in _ABSENT_ERRORS:
                raise
            logger.warning("The directory %s cannot be listed: %s", self._root, problem.strerror)
        return directory_scan.entries

    def _open(self, directories: Sequence[str]) -> int:
        fd = os.open(self._root, _ROOT_FLAGS)
        try:
            for name in (*self._subdirectories, *directories):
                inner = os.open(name, _DIRECTORY_FLAGS, dir_fd=fd)
                fd, outer = inner, fd
                os.close(outer)
        except BaseException:
            os.close(fd)
            raise
        return fd


@dataclass(slots=True)
class _DirectoryScan:
    """A scan of directories for at most `_max_files` files."""

    _selection: FileSelection
    _max_files: int
    _remaining_names: int = MAX_VISITED_NAMES
    entries: list[FileEntry] = field(default_factory=list)

    @property
    def _is_complete(self) -> bool:
        return self._remaining_names <= 0 or len(self.entries) >= self._max_files

    def scan_directory(self, fd: int, prefix: str) -> None:
        """Scan an open directory, and close it."""
        try:
            directories = self._collect_files(fd, prefix)
            if self._selection.recursive and prefix.count("/") + 1 < MAX_PATH_DEPTH:
                for name in directories:
                    if not self._is_complete:
                        self._descend(fd, name, prefix)
        finally:
            os.close(fd)

    def _collect_files(self, fd: int, prefix: str) -> list[str]:
        """Add the files of a directory to the entries, and return its directories."""
        directories: list[str] = []
        with os.scandir(fd) as names:
            entries = sorted(islice(names, self._remaining_names), key=lambda entry: entry.name)

        self._remaining_names -= len(entries)
        for entry in entries:
            if not self._selection.is_name_served(entry.name):
                continue
            if entry.is_dir(follow_symlinks=False):
                directories.append(entry.name)
            elif entry.is_file(follow_symlinks=False) and self._selection.matches_pattern(prefix + entry.name):
                try:
                    file_stat = os.stat(entry.name, dir_fd=fd, follow_symlinks=False)
                except FileNotFoundError:
                    continue
                if len(self.entries) < self._max_files:
                    self.entries.append(FileEntry(prefix + entry.name, file_stat.st_size, file_stat.st_mtime_ns))

        return directories

    def _descend(self, fd: int, name: str, prefix: str) -> None:
        try:
            self.scan_directory(os.open(name, _DIRECTORY_FLAGS, dir_fd=fd), f"{prefix}{name}/")
        except OSError as problem:
            if problem.errno not in _ABSENT_ERRORS:
                raise  # Other errors mean that the directory was removed or is not readable.


def read_limited(read: Callable[[int], bytes | None], max_bytes: int) -> bytes:
    """Read all chunks of `read`. Raises ContentTooLarge above `max_bytes` bytes."""
    content = bytearray()
    while piece := read(min(READ_CHUNK_BYTES, max_bytes + 1 - len(content))):
        content += piece
        if len(content) > max_bytes:
            raise ContentTooLarge(max_bytes)
    return bytes(content)
