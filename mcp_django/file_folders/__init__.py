"""Folders of files, written complete: under a hidden name first, and then renamed.

A reader sees the old folder or the new one, never a part. No path leads out of the folder, and no symbolic link is
followed below its parent.
"""

import os
import secrets
import shutil
from collections.abc import Mapping
from pathlib import Path

from mcp_django.protocol.skills import is_safe_segment


def write_folder(target: Path, files: Mapping[str, bytes], *, replace: bool = False) -> None:
    """Write files, by their paths below `target`, and create the folders above it.

    Raises ValueError for a path that leads elsewhere, FileExistsError for an existing target without `replace`, for a
    symbolic link, and for two paths that are one for the file system. Raises OSError. Then nothing is changed.
    """
    for path in files:
        if not all(map(is_safe_segment, path.split("/"))):
            raise ValueError(f"{path!r:.200} leads out of its folder")
    if target.is_symlink() or (target.exists() and not (replace and target.is_dir())):
        raise FileExistsError(f"{target} exists")

    hidden = target.with_name(f".{target.name}.{secrets.token_hex(8)}")
    hidden.mkdir(parents=True)
    try:
        for path, data in files.items():
            file = hidden.joinpath(*path.split("/"))
            file.parent.mkdir(parents=True, exist_ok=True)
            with file.open("xb") as opened:
                opened.write(data)
        _rename(hidden, target)
    finally:
        shutil.rmtree(hidden, ignore_errors=True)


def _rename(folder: Path, target: Path) -> None:
    """Put a folder in the place of `target`, which is empty, missing or replaced."""
    if not os.path.lexists(target):
        folder.rename(target)
        return
    old = folder.with_name(f"{folder.name}.old")
    target.rename(old)
    try:
        folder.rename(target)
    except OSError:
        old.rename(target)
        raise
    shutil.rmtree(old, ignore_errors=True)
