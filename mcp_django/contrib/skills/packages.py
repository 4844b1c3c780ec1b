"""Skills from a folder or a ZIP archive: read, checked, and written.

Nothing outside of the folder is read or written: names that lead elsewhere and symbolic links are refused.
"""

import stat
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from mcp_django.contrib.skills.trees import SkillSelection, SkillTree
from mcp_django.file_folders import write_folder
from mcp_django.protocol.skills import (
    MAX_SKILL_BYTES,
    MAX_SKILL_FILES,
    SKILL_FILE,
    InvalidSkill,
    SkillManifest,
    is_safe_segment,
)
from mcp_django.providers.files import ContentTooLarge, DirectorySandbox, FileEntry, FileSelection, read_limited
from mcp_django.schema.frontmatter import FrontmatterError, parse_frontmatter


@dataclass(frozen=True, slots=True)
class MemoryFiles:
    """Files in memory, as a source of files."""

    contents: Mapping[str, bytes]
    """Bytes of the files, by their paths."""

    def read(self, parts: Sequence[str], max_bytes: int) -> bytes | None:
        """Return the content; None if the file is missing. Raises ContentTooLarge."""
        data = self.contents.get("/".join(parts))
        if data is not None and len(data) > max_bytes:
            raise ContentTooLarge(max_bytes)
        return data

    def scan(self, selection: FileSelection, max_files: int) -> list[FileEntry]:
        """List the first `max_files` served files."""
        served = [path for path in sorted(self.contents) if selection.split_path(path) is not None]
        return [FileEntry(path, len(self.contents[path])) for path in served[:max_files]]


@dataclass(frozen=True, slots=True)
class SkillPackage:
    """A checked skill, and the files that are served of it."""

    manifest: SkillManifest
    files: Mapping[str, bytes]
    """Bytes of the files, by their paths below the folder of the skill."""
    skipped: tuple[str, ...] = ()
    """Paths of files that are never served, such as hidden ones."""


def check_package(files: Mapping[str, bytes]) -> SkillPackage:
    """Return the skill of these files, which must include a `SKILL.md`. Raises InvalidSkill."""
    if SKILL_FILE not in files:
        raise InvalidSkill(f"the folder has no {SKILL_FILE}")
    try:
        name = parse_frontmatter(files[SKILL_FILE]).get("name")
    except FrontmatterError as problem:
        raise InvalidSkill(f"{SKILL_FILE}: {problem}") from None
    # A name that breaks the rules is reported by the tree. It may not become a path.
    folder = name if isinstance(name, str) and is_safe_segment(name) else "skill"
    memory = MemoryFiles({f"{folder}/{path}": data for path, data in files.items()})
    snapshot = SkillTree(memory, label=folder).load()
    if snapshot.problems:
        raise InvalidSkill("; ".join(problem.text for problem in snapshot.problems))
    manifest = snapshot.skills[folder]
    served = {file.path: files[file.path] for file in manifest.files or ()}
    return SkillPackage(manifest, served, tuple(sorted(files.keys() - served.keys())))


def read_package(source: Path) -> SkillPackage:
    """Read a folder with a `SKILL.md`, or a ZIP archive of one, and check it.

    Raises InvalidSkill: it is no valid skill, or leads out of its folder. Raises OSError.
    """
    if source.is_dir():
        return check_package(_read_directory(source))
    try:
        with zipfile.ZipFile(source) as archive:
            return check_package(_read_archive(archive))
    except (zipfile.BadZipFile, NotImplementedError, RuntimeError) as problem:
        raise InvalidSkill(f"{source.name} is not a readable ZIP archive: {problem}") from None


def _read_directory(source: Path) -> dict[str, bytes]:
    for path in source.rglob("*"):
        if path.is_symlink():
            raise InvalidSkill(f"{path.relative_to(source)} is a symbolic link; replace it by the file")
    sandbox, files, rest = DirectorySandbox(source), dict[str, bytes](), MAX_SKILL_BYTES
    for entry in sandbox.scan(SkillSelection(), MAX_SKILL_FILES + 1):
        try:
            data = sandbox.read(entry.path.split("/"), rest)
        except ContentTooLarge:
            raise InvalidSkill(f"the skill is larger than {MAX_SKILL_BYTES} bytes") from None
        if data is None:
            raise InvalidSkill(f"{entry.path} is not readable")
        rest -= len(data)
        files[entry.path] = data
    return files


def _read_archive(archive: zipfile.ZipFile) -> dict[str, bytes]:
    members = [member for member in archive.infolist() if not member.is_dir()]
    if len(members) > MAX_SKILL_FILES * 2:
        raise InvalidSkill(f"the archive has more than {MAX_SKILL_FILES * 2} files")
    files, rest = dict[str, bytes](), MAX_SKILL_BYTES
    for member in members:
        path = member.filename
        if not all(map(is_safe_segment, path.split("/"))) or path in files:
            raise InvalidSkill(f"the archive has the invalid or repeated path {path!r:.200}")
        if stat.S_ISLNK(member.external_attr >> 16):
            raise InvalidSkill(f"{path!r:.200} is a symbolic link; replace it by the file")
        try:
            with archive.open(member) as content:
                files[path] = read_limited(content.read, rest)
        except ContentTooLarge:
            raise InvalidSkill(f"the skill is larger than {MAX_SKILL_BYTES} bytes") from None
        rest -= len(files[path])
    return _remove_outer_folder(files)


def _remove_outer_folder(files: dict[str, bytes]) -> dict[str, bytes]:
    """Return the files of the only folder, if the archive has its `SKILL.md` in it."""
    folders = {path.partition("/")[0] for path in files}
    if SKILL_FILE in files or len(folders) != 1:
        return files
    prefix = f"{folders.pop()}/"
    return {path.removeprefix(prefix): data for path, data in files.items()}


def write_package(package: SkillPackage, directory: Path, *, replace: bool = False) -> Path:
    """Write a skill below a folder of skills, and return its folder.

    The folder appears complete. Raises FileExistsError without `replace`, and OSError.
    """
    target = directory / package.manifest.name
    write_folder(target, package.files, replace=replace)
    return target
