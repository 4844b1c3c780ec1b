"""Files of other programs: read whole, and replaced whole or not at all."""

import contextlib
import os
import secrets
import stat
from pathlib import Path

BOM = "\N{ZERO WIDTH NO-BREAK SPACE}"


class SafeFile:
    """One file, as it was when it was read. Links are followed, so that they stay links."""

    def __init__(self, path: Path) -> None:
        """Raises OSError, and ValueError for what is no UTF-8."""
        self.path = path.expanduser().resolve()
        self._before = self._read()
        text = (self._before or b"").decode("utf-8")
        self._mark = BOM if text.startswith(BOM) else ""
        self.text = text.removeprefix(BOM)

    def _read(self) -> bytes | None:
        try:
            # What is no file, such as a pipe, could not be replaced, and might never be read to its end.
            if not stat.S_ISREG(self.path.stat().st_mode):
                raise OSError("it is no file")
            return self.path.read_bytes()
        except FileNotFoundError:
            return None

    def is_shared(self) -> bool:
        """Can others than its owner read it, as far as its mode says so?"""
        return os.name == "posix" and bool(self.path.stat().st_mode & 0o044)

    def replace(self, text: str, *, private: bool = False) -> Path | None:
        """Write `text` instead, and return the copy of what was there before, if anything was. With `private`, a file
        that is new is its owner's alone. Raises OSError, also when the file has changed meanwhile.
        """
        self.path.parent.mkdir(parents=True, exist_ok=True)
        status = None if self._before is None else self.path.stat()
        mode = (0o600 if private else 0o666) if status is None else status.st_mode & 0o7777
        made = self._write_aside((self._mark + text).encode(), mode, exact=status is not None)
        try:
            if self._read() != self._before:
                raise OSError(f"{self.path} was changed by somebody else just now; try again")
            if status is not None and hasattr(os, "chown"):
                with contextlib.suppress(OSError):  # only root can, and only root has to
                    os.chown(made, status.st_uid, status.st_gid)
            backup = None if self._before is None else self._back_up(self._before, mode)
            made.replace(self.path)
        except BaseException:
            made.unlink(missing_ok=True)
            raise
        return backup

    def _write_aside(self, data: bytes, mode: int, *, exact: bool) -> Path:
        made = self.path.with_name(f".{self.path.name}.{secrets.token_hex(8)}")
        descriptor = os.open(made, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(descriptor)
        if exact:
            made.chmod(mode)
        return made

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
