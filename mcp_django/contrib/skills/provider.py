"""Providers of skill folders: a directory, a storage, or the folders `skills` of the installed apps."""

import functools
import os
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from django.apps import apps
from django.core.checks import CheckMessage, Error, Warning
from django.core.files.storage import Storage

from mcp_django.contrib.skills.manifests import build_exact_contents
from mcp_django.contrib.skills.trees import SkillTree, TreeSnapshot, join_path
from mcp_django.extensions.calls import Context
from mcp_django.extensions.errors import DeclarationError, InternalError
from mcp_django.extensions.primitives import Handler, Permission, Provider, Resource
from mcp_django.protocol.skills import MANIFEST_KEY, MAX_SKILL_BYTES, SKILL_FILE, SkillManifest, decode
from mcp_django.protocol.uri import quote_path
from mcp_django.providers.files import ContentTooLarge, DirectorySandbox, StorageFiles, guess_media_type, is_safe_name
from mcp_django.schema.frontmatter import FrontmatterError, find_ambiguous_values

SCHEME = "skill://"
STORAGE_REFRESH_SECONDS = 60.0
FOLDER = "skills"
"""Folder of an app that contains its skills."""


class _PlacedTree(NamedTuple):
    """A tree, and the path of its skills in URIs."""

    prefix: str
    tree: SkillTree


class SkillFolders(Provider):
    """Skills of trees of folders, as resources.

    `SKILL.md` of each skill is listed; other files are read by their URIs, and listed with `list_files`. The
    permission and the scopes apply to all of them.
    """

    offers = frozenset({"resources"})

    def __init__(
        self,
        *,
        permission: Permission | None = None,
        scopes: Sequence[str] = (),
        list_files: bool = False,
        watch: bool = True,
    ) -> None:
        if isinstance(scopes, str):
            raise DeclarationError(f"{type(self).__name__}: scopes is a list; write scopes=[{scopes!r}]")
        self._permission = permission
        self._scopes = tuple(scopes)
        self._list_files = list_files
        self._watch = watch
        self._listed: tuple[list[TreeSnapshot], tuple[Resource, ...]] = ([], ())

    def get_trees(self) -> Sequence[_PlacedTree]:
        """Return the trees, each with its prefix."""
        raise NotImplementedError

    @property
    def version(self) -> Hashable:
        """Digests of all files."""
        return repr([(prefix, sorted(tree.load().skills.items())) for prefix, tree in self.get_trees()])

    @property
    def has_version(self) -> bool:
        return self._watch

    def get_permission_dependent(self) -> frozenset[str]:
        return self.offers if self._permission is not None else frozenset()

    async def resources(self, ctx: Context) -> Iterable[Resource]:
        snapshots = await ctx.server.ports.executor.run(lambda: [placed.tree.load() for placed in self.get_trees()])
        known, listed = self._listed
        if len(known) != len(snapshots) or any(a is not b for a, b in zip(known, snapshots, strict=True)):
            listed = tuple(self._list(snapshots))
            self._listed = snapshots, listed
        return listed

    def _list(self, snapshots: Sequence[TreeSnapshot]) -> Iterable[Resource]:
        uris: set[str] = set()
        for placed, snapshot in zip(self.get_trees(), snapshots, strict=True):
            for folder, manifest in snapshot.skills.items():
                for file in manifest.files or ():
                    resource = self._build(placed, snapshot, f"{folder}/{file.path}")
                    wanted = self._list_files or file.path == SKILL_FILE
                    if wanted and resource is not None and resource.uri not in uris:
                        uris.add(resource.uri)
                        yield resource

    async def resource(self, uri: str, ctx: Context) -> Resource | None:
        path = decode(uri.removeprefix(SCHEME)) if uri.startswith(SCHEME) else None
        if path is None or "%2f" in uri.lower():
            return None
        return await ctx.server.ports.executor.run(self._find, path)

    def _find(self, path: str) -> Resource | None:
        for placed in self.get_trees():
            prefix = f"{placed.prefix}/" if placed.prefix else ""
            if path.startswith(prefix):
                found = self._build(placed, placed.tree.load(), path.removeprefix(prefix))
                if found is not None:
                    return found
        return None

    def _build(self, placed: _PlacedTree, snapshot: TreeSnapshot, path: str) -> Resource | None:
        """Return the resource of a file of a skill."""
        found = snapshot.find_file(path)
        if found is None:
            return None
        folder, file = found
        own_folder, _, name = path.rpartition("/")
        manifest = snapshot.skills.get(own_folder) if name == SKILL_FILE else None
        return build_file_resource(
            SCHEME + quote_path(join_path(placed.prefix, path)),
            manifest,
            name=join_path(folder.rpartition("/")[2], file.path),
            size=file.size,
            read=functools.partial(_read, placed.tree, path),
            is_listed=self._list_files or manifest is not None,
            permission=self._permission,
            scopes=self._scopes,
            source=f"{type(self).__name__} {placed.tree.label}",
        )

    def check(self) -> Iterable[CheckMessage]:
        """Yield errors of folders that are not served, and warnings of ambiguous values."""
        places: dict[str, str] = {}
        for _, tree in self.get_trees():
            snapshot = tree.load()
            for problem in snapshot.problems:
                yield Error(
                    f"The skill {join_path(tree.label, problem.path)} is not served: {problem.text}.",
                    hint="docs/expose/skills.md lists the rules of a skill.",
                    id="mcp_skills.E001",
                )
            for folder, manifest in snapshot.skills.items():
                where = join_path(tree.label, folder)
                yield from _find_warnings(where, tree.read(f"{folder}/{SKILL_FILE}") or b"")
                if places.setdefault(manifest.name, where) != where:
                    yield Warning(
                        f"The skills {places[manifest.name]} and {where} have the same name {manifest.name!r}.",
                        hint="Give each skill of a server a unique name: some clients show the name only.",
                        id="mcp_skills.W002",
                    )


class Skills(SkillFolders):
    """Skills in a directory or a storage: each folder with a `SKILL.md`.

    `Skills("docs/skills", prefix="shop")` serves `docs/skills/refunds/SKILL.md` as `skill://shop/refunds/SKILL.md`.
    With `storage`, an alias in STORAGES or a storage, `directory` is a path in it. Storages are listed at most each
    `refresh` seconds, directories at each use. With `watch`, clients that listen are notified of changes.

    Raises DeclarationError for an invalid prefix or path.
    """

    def __init__(
        self,
        directory: str | os.PathLike[str] = "",
        *,
        storage: str | Storage | None = None,
        prefix: str = "",
        permission: Permission | None = None,
        scopes: Sequence[str] = (),
        list_files: bool = False,
        refresh: float | None = None,
        watch: bool | None = None,
    ) -> None:
        super().__init__(
            permission=permission,
            scopes=scopes,
            list_files=list_files,
            watch=storage is None if watch is None else watch,
        )
        parts = prefix.split("/") if prefix else []
        if not all(is_safe_name(part) for part in parts):
            raise DeclarationError(f"{type(self).__name__}: {prefix!r} is an invalid prefix; write it like 'shop'")
        if storage is None:
            if not os.fspath(directory):
                raise DeclarationError(f"{type(self).__name__}: name a directory, or storage=")
            tree = SkillTree(DirectorySandbox(directory), label=str(directory), refresh=refresh or 0)
        else:
            inner = [part for part in os.fspath(directory).split("/") if part]
            if not all(map(is_safe_name, inner)):
                raise DeclarationError(f"{type(self).__name__}: {directory!r} is an invalid path in a storage")
            label = join_path(storage if isinstance(storage, str) else type(storage).__name__, *inner)
            seconds = STORAGE_REFRESH_SECONDS if refresh is None else refresh
            tree = SkillTree(StorageFiles(storage, inner), label=label, refresh=seconds)
        self._trees = (_PlacedTree(prefix, tree),)

    def get_trees(self) -> Sequence[_PlacedTree]:
        return self._trees


class AppSkills(SkillFolders):
    """Skills of installed apps: `<app>/skills/<name>/SKILL.md`, at `skill://<label>/<name>/SKILL.md`.

    `labels` selects apps by label; the default is all of them. Raises DeclarationError for an unknown label.
    """

    def __init__(
        self,
        labels: Sequence[str] | None = None,
        *,
        permission: Permission | None = None,
        scopes: Sequence[str] = (),
        list_files: bool = False,
        watch: bool = True,
    ) -> None:
        super().__init__(permission=permission, scopes=scopes, list_files=list_files, watch=watch)
        configs = {config.label: config for config in apps.get_app_configs()}
        unknown = [label for label in labels or () if label not in configs]
        if unknown or isinstance(labels, str):
            raise DeclarationError(f"AppSkills: {labels!r} must be a list of labels of installed apps")
        directories = {label: Path(configs[label].path) / FOLDER for label in (configs if labels is None else labels)}
        self._trees = tuple(
            _PlacedTree(label, SkillTree(DirectorySandbox(directory), label=f"{label}/{FOLDER}"))
            for label, directory in directories.items()
            if directory.is_dir()
        )

    def get_trees(self) -> Sequence[_PlacedTree]:
        return self._trees


def build_file_resource(
    uri: str,
    manifest: SkillManifest | None,
    *,
    name: str,
    size: int | None,
    read: Callable[..., Any],
    is_listed: bool,
    permission: Permission | None,
    scopes: Sequence[str],
    source: str,
) -> Resource:
    """Build the resource of a file of a skill; `manifest` is that of a `SKILL.md`."""
    metadata: Mapping[str, Any] = {} if manifest is None else {MANIFEST_KEY: manifest}
    return Resource(
        uri=uri,
        name=name if manifest is None else manifest.name,
        description=None if manifest is None else manifest.description,
        mime_type="text/markdown" if manifest is not None else guess_media_type(name),
        size=size,
        is_listed=is_listed,
        permission=permission,
        scopes=tuple(scopes),
        metadata=metadata,
        handler=Handler(read, atomic=()),
        source=source,
    )


def _read(tree: SkillTree, path: str) -> Any:
    try:
        data = tree.read(path)
    except ContentTooLarge:
        raise InternalError(f"The file is larger than {MAX_SKILL_BYTES} bytes, which is the limit") from None
    if data is None:
        return None
    is_skill_file = path.rpartition("/")[2] == SKILL_FILE
    return build_exact_contents(data, "text/markdown" if is_skill_file else guess_media_type(path))


def _find_warnings(where: str, data: bytes) -> Iterable[CheckMessage]:
    try:
        values = find_ambiguous_values(data)
    except FrontmatterError:
        return
    if values:
        yield Warning(
            f"The frontmatter of {where} has values that YAML 1.1 reads differently: {', '.join(values)[:200]}.",
            hint="Quote them: some clients refuse the skill otherwise.",
            id="mcp_skills.W001",
        )
