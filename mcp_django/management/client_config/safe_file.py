"""Files of other programs: read completely, and replaced atomically."""

import contextlib
import os
import secrets
import stat
from pathlib import Path

BOM = "\N{ZERO WIDTH NO-BREAK SPACE}"


class SafeFile:
    """A file with its content at the time of reading.

    Symbolic links are followed and kept.
    """

    def __init__(self, path: Path) -> None:
        """Read the file. Raises OSError, and ValueError for invalid UTF-8."""
        self.path = path.expanduser().resolve()
        self._original = self._read()
        text = (self._original or b"").decode("utf-8")
        self._bom = BOM if text.startswith(BOM) else ""
        self.text = text.removeprefix(BOM)

    def _read(self) -> bytes | None:
        try:
            # Other kinds, such as a pipe, cannot be replaced, and reading them might never end.
            if not stat.S_ISREG(self.path.stat().st_mode):
                raise OSError("it is not a regular file")
            return self.path.read_bytes()
        except FileNotFoundError:
            return None

    def is_readable_by_others(self) -> bool:
        """Return True if other users can read the file, according to its mode."""
        return os.name == "posix" and bool(self.path.stat().st_mode & 0o044)

    def replace(self, text: str, *, private: bool = False) -> Path | None:
        """Write `text` and return the path of the backup, if the file existed.

        With `private`, a new file is only accessible to its owner. Raises OSError, also if the file has changed since
        it was read.
        """
        self.path.parent.mkdir(parents=True, exist_ok=True)
        status = None if self._original is None else self.path.stat()
        if status is not None:
            mode = status.st_mode & 0o7777
        else:
            mode = 0o600 if private else 0o666
        temporary = self._write_temporary((self._bom + text).encode(), mode, exact=status is not None)

        try:
            if self._read() != self._original:
                raise OSError(f"{self.path} was changed by another program; try again")
            if status is not None and hasattr(os, "chown"):
                with contextlib.suppress(OSError):  # only root can do this, and only root has to
                    os.chown(temporary, status.st_uid, status.st_gid)
            backup = None if self._original is None else self._back_up(self._original, mode)
            temporary.replace(self.path)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
        return backup

    def _write_temporary(self, data: bytes, mode: int, *, exact: bool) -> Path:
        temporary = self.path.with_name(f".{self.path.name}.{secrets.token_hex(8)}")
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(descriptor)
        if exact:
            temporary.chmod(mode)
        return temporary

    def _back_up(self, data: bytes, mode: int) -> Path:
        for number in range(1, 1000):
            backup = self.path.with_name(f"{self.path.name}.bak{number if number > 1 else ''}")
            try:
                descriptor = os.open(backup, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
            except FileExistsError:
                continue
            with os.fdopen(descriptor, "wb") as file:
                file.write(data)
            return backup
        raise OSError(f"{self.path} has a thousand backups; remove some")
