"""Trees of skill folders: a consistent snapshot of their files, with the digest of each.

Each use lists the tree again, and hashes files whose size or time changed. A file counts as unchanged only once its
time is older than the clock's precision, so a second write within it is not missed. Reading compares the bytes with the
digest, and starts a new snapshot if they differ. A replaced file is therefore visible in each process at the next use.
"""

import fnmatch
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from mcp_django.extensions.calls import get_logger
from mcp_django.extensions.errors import DeclarationError
from mcp_django.extensions.primitives import convert_failures
from mcp_django.protocol.skills import (
    MAX_SKILL_BYTES,
    MAX_SKILL_FILES,
    SKILL_FILE,
    SkillFile,
    SkillManifest,
    compute_digest,
    find_problems,
)
from mcp_django.providers.files import ContentTooLarge, FileEntry, FileSelection, FileSource
from mcp_django.schema.frontmatter import FrontmatterError, parse_frontmatter

logger = get_logger("mcp_django.skills")

SKIPPED_NAMES = ("__pycache__", "*.pyc", "*.pyo", "*~", "*.bak", "*.orig", "*.rej", "*.swp", "*.swo", "*.tmp", "#*#")
"""Names that are never served, beside those with a leading dot."""
MAX_TREE_FILES = 20_000
MAX_BUILDS = 5
"""Maximum builds of a snapshot while files change."""
SETTLING_SECONDS = 2.0
"""Age in seconds at which the time of a file proves that its content is unchanged."""


class SkillSelection(FileSelection):
    """The files of skills: all names but hidden ones, caches and backups."""

    def is_name_served(self, name: str) -> bool:
        return super().is_name_served(name) and not any(
            fnmatch.fnmatchcase(name.casefold(), pattern) for pattern in SKIPPED_NAMES
        )


class SkillProblem(NamedTuple):
    """A folder that is not served, or files that change too fast."""

    path: str
    """Path of the folder below the root of the tree."""
    text: str


@dataclass(frozen=True, slots=True)
class TreeSnapshot:
    """The skills of a tree at one time, by the path of their folders."""

    skills: dict[str, SkillManifest] = field(default_factory=dict)
    problems: tuple[SkillProblem, ...] = ()

    def find_file(self, path: str) -> tuple[str, SkillFile] | None:
        """Return the folder of the outermost skill that contains a file, and the file."""
        parts = path.split("/")
        for depth in range(1, len(parts)):
            folder = "/".join(parts[:depth])
            manifest = self.skills.get(folder)
            inner = path[len(folder) + 1 :]
            found = next((one for one in (manifest.files if manifest else None) or () if one.path == inner), None)
            if found is not None:
                return folder, found
        return None


class _KnownFile(NamedTuple):
    """A hashed file, and the list entry that it had then."""

    entry: FileEntry
    digest: str
    size: int
    is_settled: bool
    frontmatter: dict[str, Any] | FrontmatterError | None


class _UnreadableFile(Exception):
    """A file is not readable or too large; the text has the reason."""


class SkillTree:
    """The skill folders of one source of files. Its methods block."""

    def __init__(
        self,
        files: FileSource,
        *,
        label: str,
        refresh: float = 0,
        get_time: Callable[[], float] = time.time,
    ) -> None:
        """Set the source. A snapshot is used for `refresh` seconds before the files are listed again."""
        self.label = label
        self._files = files
        self._refresh = refresh
        self._get_time = get_time
        self._selection = SkillSelection()
        self._lock = threading.Lock()
        self._known: dict[str, _KnownFile] = {}
        self._snapshot: TreeSnapshot | None = None
        self._expires = 0.0

    def load(self) -> TreeSnapshot:
        """Return the current snapshot: the same object while nothing has changed."""
        with self._lock:
            if self._snapshot is not None and self._get_time() < self._expires:
                return self._snapshot
            snapshot = self._build()
            if snapshot != self._snapshot:
                self._log_problems(snapshot)
                self._snapshot = snapshot
            self._expires = self._get_time() + self._refresh
            return self._snapshot

    def read(self, path: str) -> bytes | None:
        """Return the bytes of a file of a skill; None for any other file. Raises ContentTooLarge."""
        found = self.load().find_file(path)
        parts = self._selection.split_path(path)
        if found is None or parts is None:
            return None
        data = self._files.read(parts, MAX_SKILL_BYTES)
        if data is None or compute_digest(data) != found[1].digest:
            # The snapshot is of other bytes: the next entry must not repeat its digest.
            with self._lock:
                self._known.pop(path, None)
                self._expires = 0.0
        return data

    def _build(self) -> TreeSnapshot:
        """Hash the files until none changes in between."""
        entries = self._scan()
        for _ in range(MAX_BUILDS):
            if len(entries) >= MAX_TREE_FILES:
                text = f"the folder has {MAX_TREE_FILES} files or more; none of its skills is served"
                return TreeSnapshot(problems=(SkillProblem("", text),))
            snapshot = self._build_from(entries)
            again = self._scan()
            if again == entries:
                return snapshot
            entries = again
        # A client must not receive digests of different times.
        return self._snapshot or TreeSnapshot(problems=(SkillProblem("", "the files change all the time"),))

    def _scan(self) -> list[FileEntry]:
        return self._files.scan(self._selection, MAX_TREE_FILES)

    def _build_from(self, entries: Sequence[FileEntry]) -> TreeSnapshot:
        folders = sorted(
            entry.path.removesuffix("/" + SKILL_FILE) for entry in entries if entry.path.endswith("/" + SKILL_FILE)
        )
        skills: dict[str, SkillManifest] = {}
        problems: list[SkillProblem] = []
        used: dict[str, _KnownFile] = {}

        for folder in folders:
            inner = [entry for entry in entries if entry.path.startswith(folder + "/")]
            built = self._try_build_skill(folder, inner, used)
            if isinstance(built, SkillManifest):
                skills[folder] = built
            else:
                problems.append(SkillProblem(folder, built))

        self._known = used
        return TreeSnapshot(skills, tuple(problems))

    def _try_build_skill(
        self, folder: str, entries: Sequence[FileEntry], used: dict[str, _KnownFile]
    ) -> SkillManifest | str:
        """Build the manifest of a folder. A failure of any kind is a reason, so it never affects other skills."""
        try:
            with convert_failures("the skill"):
                return self._build_skill(folder, entries, used)
        except DeclarationError as failure:
            return str(failure)

    def _build_skill(
        self, folder: str, entries: Sequence[FileEntry], used: dict[str, _KnownFile]
    ) -> SkillManifest | str:
        """Return the manifest of a folder, or the reason why it is not served."""
        if len(entries) > MAX_SKILL_FILES or sum(entry.size or 0 for entry in entries) > MAX_SKILL_BYTES:
            return f"the skill has more than {MAX_SKILL_FILES} files, or {MAX_SKILL_BYTES // 1024 // 1024} MiB"
        for entry in entries:
            if entry.path not in used:
                try:
                    used[entry.path] = self._hash(entry)
                except _UnreadableFile as problem:
                    return f"{entry.path[len(folder) + 1 :]} {problem}"

        known = [used[entry.path] for entry in entries]
        if sum(file.size for file in known) > MAX_SKILL_BYTES:
            return f"the skill has more than {MAX_SKILL_BYTES // 1024 // 1024} MiB"
        frontmatter = used[f"{folder}/{SKILL_FILE}"].frontmatter
        if frontmatter is None or isinstance(frontmatter, FrontmatterError):
            return f"{SKILL_FILE}: {frontmatter}"

        problems = [*find_problems(frontmatter)]
        name, directory = frontmatter.get("name"), folder.rpartition("/")[2]
        if not problems and name != directory:
            problems.append(f"name {name!r} must be the name of its folder, {directory!r}")
        if problems:
            return f"{SKILL_FILE}: {'; '.join(problems)}"
        files = (SkillFile(file.entry.path[len(folder) + 1 :], file.digest, file.size) for file in known)
        return SkillManifest(frontmatter, tuple(sorted(files, key=lambda file: (file.path != SKILL_FILE, file.path))))

    def _hash(self, entry: FileEntry) -> _KnownFile:
        known = self._known.get(entry.path)
        if known is not None and known.is_settled and known.entry == entry:
            return known
        hashed = self._get_time()
        # A file that is replaced at this moment has another entry in the next scan, and is read again.
        try:
            data = self._files.read(entry.path.split("/"), MAX_SKILL_BYTES)
        except ContentTooLarge:
            raise _UnreadableFile(f"has more than {MAX_SKILL_BYTES // 1024 // 1024} MiB") from None
        if data is None:
            raise _UnreadableFile("cannot be read")

        is_settled = entry.modified_ns is not None and hashed - entry.modified_ns / 1e9 > SETTLING_SECONDS
        digest = compute_digest(data)
        if known is not None and known.digest == digest:
            return known._replace(entry=entry, is_settled=is_settled)
        is_skill_file = entry.path.endswith("/" + SKILL_FILE)
        return _KnownFile(entry, digest, len(data), is_settled, _parse(data) if is_skill_file else None)

    def _log_problems(self, snapshot: TreeSnapshot) -> None:
        old = () if self._snapshot is None else self._snapshot.problems
        for problem in snapshot.problems:
            if problem not in old:
                logger.warning("A skill is not served: %s: %s", join_path(self.label, problem.path), problem.text)


def _parse(data: bytes) -> dict[str, Any] | FrontmatterError:
    try:
        return parse_frontmatter(data)
    except FrontmatterError as problem:
        return problem


def join_path(*parts: str) -> str:
    """Join the parts of a path that are not empty."""
    return "/".join(filter(None, parts))


def find_directories(files: Iterable[SkillFile]) -> set[str]:
    """Return the paths of all directories of a skill, without the empty one of its root."""
    parents: set[str] = set()
    for file in files:
        parts = file.path.split("/")[:-1]
        parents.update("/".join(parts[: depth + 1]) for depth in range(len(parts)))
    return parents
