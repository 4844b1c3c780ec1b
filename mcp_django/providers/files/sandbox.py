"""Directory sandbox: read files below a root that no path can leave.

A path is opened name by name, each relative to the open directory (`dir_fd`) and never through a symbolic link
(`O_NOFOLLOW`). The checked file is therefore the opened one, even if a name is replaced by a link in between
(openat(2); RESOLVE_BENEATH and RESOLVE_NO_SYMLINKS of openat2(2) on Linux). Only the root itself may be reached through
links, because the project chose it.
"""

import errno
import logging
import os
import stat
from collections.abc import Callable, Sequence
from itertools import islice
from pathlib import Path

from django.core.exceptions import ImproperlyConfigured

from mcp_django.providers.files.patterns import DEPTH, Entry, Selection, TooLarge

logger = logging.getLogger("mcp_django.providers")

CHUNK = 64 * 1024
VISITED = 50_000
"""Maximum number of names that one scan reads; further files are not listed."""
_SAFE = os.open in os.supports_dir_fd and os.stat in os.supports_dir_fd and hasattr(os, "O_NOFOLLOW")
_DIRECTORY = os.O_RDONLY | getattr(os, "O_DIRECTORY", 0) | getattr(os, "O_CLOEXEC", 0)
_BENEATH = _DIRECTORY | getattr(os, "O_NOFOLLOW", 0)
# Non-blocking, in case a pipe replaces the file after the check.
_FILE = (
    os.O_RDONLY
    | getattr(os, "O_NOFOLLOW", 0)
    | getattr(os, "O_NONBLOCK", 0)
    | getattr(os, "O_NOCTTY", 0)
    | getattr(os, "O_CLOEXEC", 0)
)
_ABSENT = frozenset(
    {errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.ELOOP, errno.EACCES, errno.EPERM, errno.ENXIO}
    | {errno.ENAMETOOLONG, errno.EINVAL, errno.ESTALE}
)
"""Errors that mean "not found" to a client: missing, not a file, or not readable."""


class Rooted:
    """The files below `root`."""

    def __init__(self, root: str | os.PathLike[str], below: Sequence[str] = ()) -> None:
        """Set the root and `subdirectories` below it, to which paths are relative.

        The subdirectories must not be links.
        """
        if not _SAFE:
            raise ImproperlyConfigured("Directories cannot be served safely on this system, which has no openat()")
        self._root, self._below = Path(root).absolute(), tuple(below)

    def read(self, parts: Sequence[str], most: int) -> bytes | None:
        """Return the content of a regular file; None if it is missing or not readable.

        Raises ContentTooLarge above `max_bytes` bytes, whatever size the file reports, and OSError for disk errors.
        """
        try:
            return self._read(parts, most)
        except OSError as problem:
            if problem.errno in (errno.EACCES, errno.EPERM):
                logger.warning("A file below %s may not be read by this process: %s", self._root, "/".join(parts))
            if problem.errno in _ABSENT:
                return None
            raise

    def _read(self, parts: Sequence[str], most: int) -> bytes | None:
        *directories, name = parts
        at = self._open(directories)
        try:
            # Check the type first, because opening a device or a pipe may have effects.
            if not stat.S_ISREG(os.stat(name, dir_fd=at, follow_symlinks=False).st_mode):
                return None
            fd = os.open(name, _FILE, dir_fd=at)
        finally:
            os.close(at)
        with os.fdopen(fd, "rb", buffering=0) as file:
            if not stat.S_ISREG(os.fstat(fd).st_mode):
                return None
            return capped(file.read, most)

    def scan(self, selection: Selection, most: int) -> list[Entry]:
        """List the first `max_files` served files, sorted by path within each directory."""
        look = _Look(selection, most)
        try:
            look.through(self._open(()), "")
        except OSError as problem:
            if problem.errno not in _ABSENT:
                raise
            logger.warning("The directory %s cannot be listed: %s", self._root, problem.strerror)
        return look.found

    def _open(self, directories: Sequence[str]) -> int:
        fd = os.open(self._root, _DIRECTORY)
        try:
            for name in (*self._below, *directories):
                inner = os.open(name, _BENEATH, dir_fd=fd)
                fd, outer = inner, fd
                os.close(outer)
        except BaseException:
            os.close(fd)
            raise
        return fd


class _Look:
    """A scan of directories for at most `max_files` files."""

    def __init__(self, selection: Selection, most: int) -> None:
        self._selection, self._most, self._left = selection, most, VISITED
        self.found: list[Entry] = []

    @property
    def _is_over(self) -> bool:
        return self._left <= 0 or len(self.found) >= self._most

    def through(self, fd: int, prefix: str) -> None:
        """Scan an open directory, and close it."""
        try:
            directories = self._files(fd, prefix)
            if self._selection.recursive and prefix.count("/") + 1 < DEPTH:
                for name in directories:
                    if not self._is_over:
                        self._descend(fd, name, prefix)
        finally:
            os.close(fd)

    def _files(self, fd: int, prefix: str) -> list[str]:
        """Add the files of a directory to the entries, and return its directories."""
        directories: list[str] = []
        with os.scandir(fd) as names:
            entries = sorted(islice(names, self._left), key=lambda entry: entry.name)

        self._left -= len(entries)
        for entry in entries:
            if not self._selection.shows(entry.name):
                continue
            if entry.is_dir(follow_symlinks=False):
                directories.append(entry.name)
            elif entry.is_file(follow_symlinks=False) and self._selection.fits(prefix + entry.name):
                try:
                    known = os.stat(entry.name, dir_fd=fd, follow_symlinks=False)
                except FileNotFoundError:
                    continue
                if len(self.found) < self._most:
                    self.found.append(Entry(prefix + entry.name, known.st_size, known.st_mtime_ns))

        return directories

    def _descend(self, fd: int, name: str, prefix: str) -> None:
        try:
            self.through(os.open(name, _BENEATH, dir_fd=fd), f"{prefix}{name}/")
        except OSError as problem:
            if problem.errno not in _ABSENT:
                raise  # Other errors mean that the directory was removed or is not readable.


def capped(read: Callable[[int], bytes | None], most: int) -> bytes:
    """Read all chunks of `read`. Raises ContentTooLarge above `max_bytes` bytes."""
    found = bytearray()
    while piece := read(min(CHUNK, most + 1 - len(found))):
        found += piece
        if len(found) > most:
            raise TooLarge(most)
    return bytes(found)
