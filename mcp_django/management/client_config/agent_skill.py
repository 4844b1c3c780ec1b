"""Skill for coding agents, which `mcp_install --skills` writes into a project.

It explains `mcp_tools.py`, permissions and tests. Its files are in the folder `skills` beside this module.
"""

import shutil
from pathlib import Path

from mcp_django.file_folders import write_folder

SKILL_NAME = "mcp-django"
_SOURCE = Path(__file__).parent / "skills" / SKILL_NAME


class ChangedSkill(Exception):
    """A folder with the skill's name and other content; the text has the path."""


def read_files(folder: Path = _SOURCE) -> dict[str, bytes]:
    """Return the bytes of all files of a folder, by their paths with "/"."""
    return {
        path.relative_to(folder).as_posix(): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()
    }


def install_skill(directory: Path, *, replace: bool) -> bool:
    """Write the skill to a folder of skills; return False if it is there already.

    Raises ChangedSkill for other content without `replace`, and OSError.
    """
    target = directory / SKILL_NAME
    if target.is_dir() and not target.is_symlink() and read_files(target) == read_files():
        return False
    try:
        write_folder(target, read_files(), replace=replace)
    except FileExistsError:
        raise ChangedSkill(str(target)) from None
    return True


def remove_skill(directory: Path, *, force: bool) -> bool:
    """Remove the skill from a folder of skills; return False if it is missing.

    Raises ChangedSkill for other content without `force`, and for a symbolic link. Raises OSError.
    """
    target = directory / SKILL_NAME
    if target.is_symlink() or (target.exists() and not target.is_dir()):
        raise ChangedSkill(str(target))
    if not target.exists():
        return False
    if not force and read_files(target) != read_files():
        raise ChangedSkill(str(target))
    shutil.rmtree(target)
    return True
