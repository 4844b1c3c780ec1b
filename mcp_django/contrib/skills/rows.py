"""Provider of stored skills: published rows, served beside the folders.

The process caches manifests by the version of all stored rows. Each request reads one row with that version. A change
is therefore visible at the next request, on every worker. Bytes are read on use, and with the row's current manifest:
a file and its digest always come from the same database.
"""

from collections.abc import Iterable
from functools import partial
from typing import Any, NamedTuple

from django.db import DatabaseError, connections, router

from mcp_django.contrib.skills.manifests import build_exact_contents
from mcp_django.contrib.skills.models import StoredSkill, StoredSkillFile
from mcp_django.contrib.skills.provider import SCHEME, build_file_resource
from mcp_django.extensions.calls import Context, get_logger
from mcp_django.extensions.errors import DeclarationError
from mcp_django.extensions.primitives import Provider, Resource, convert_failures
from mcp_django.extensions.rows import StoredState
from mcp_django.protocol.skills import SKILL_FILE, SkillFile, SkillManifest, decode
from mcp_django.protocol.uri import quote_path
from mcp_django.providers.files import guess_media_type

logger = get_logger("mcp_django.skills")


class _StoredManifest(NamedTuple):
    """A published row, without its bytes."""

    pk: int
    path: str
    manifest: SkillManifest
    permission: tuple[str, ...] | None
    scopes: tuple[str, ...]


class _Snapshot(NamedTuple):
    """The published skills that were read for one version."""

    version: str | None = None
    resources: tuple[Resource, ...] = ()
    skills: tuple[_StoredManifest, ...] = ()


class StoredSkills(Provider):
    """Skills that administrators write and publish in the admin.

    The permission and the scopes of a row apply to its `SKILL.md` and its files. A row for one server replaces a row
    with the same path for all servers.
    """

    offers = frozenset({"resources"})

    def __init__(self, *, excludes_shared: bool = False) -> None:
        """Serve the rows; `excludes_shared` leaves out rows for all servers."""
        self._excludes_shared = excludes_shared
        self._snapshots: dict[str, _Snapshot] = {}

    def for_mounting(self) -> "StoredSkills":
        """Return a provider without the rows for all servers; the host may serve them."""
        return StoredSkills(excludes_shared=True)

    def get_permission_dependent(self) -> frozenset[str]:
        # Rows change at any time, and each may have a permission.
        return self.offers

    async def resources(self, ctx: Context) -> Iterable[Resource]:
        return (await self._get_snapshot(ctx)).resources

    async def resource(self, uri: str, ctx: Context) -> Resource | None:
        path = decode(uri.removeprefix(SCHEME)) if uri.startswith(SCHEME) else None
        if path is None or "%2f" in uri.lower():
            return None
        for skill in (await self._get_snapshot(ctx)).skills:
            inner = path.removeprefix(f"{skill.path}/")
            file = next((one for one in skill.manifest.files or () if one.path == inner), None)
            if inner != path and file is not None:
                return _build(skill, file)
        return None

    async def _get_snapshot(self, ctx: Context) -> _Snapshot:
        return await ctx.server.ports.executor.run(self._load, ctx.server.alias)

    def _load(self, alias: str) -> _Snapshot:
        """Return the snapshot of the current version; blocks. The version is read before the rows."""
        try:
            version = StoredState.objects.get_version()
            known = self._snapshots.get(alias, _Snapshot())
            if version != known.version:
                known = self._snapshots[alias] = _read(alias, version, excludes_shared=self._excludes_shared)
        except DatabaseError:
            if _is_migrated():
                raise
            logger.warning("Stored skills are not served: the tables are missing; run `migrate`")
            return _Snapshot()
        return known


def _is_migrated() -> bool:
    connection = connections[router.db_for_write(StoredSkill)]
    return StoredSkill._meta.db_table in connection.introspection.table_names()


def _read(alias: str, version: str, *, excludes_shared: bool) -> _Snapshot:
    servers = [alias] if excludes_shared else ["", alias]
    rows = (
        StoredSkill._default_manager.filter(enabled=True, server__in=servers)
        .order_by("server")
        .prefetch_related("files")
    )
    skills: dict[str, _StoredManifest] = {}
    for row in rows:
        try:
            with convert_failures("the skill"):
                skills[row.path] = _build_manifest(row)
        except DeclarationError as problem:
            logger.warning("A stored skill is not served: %s: %s", row, problem)
    found = tuple(skills.values())
    listed = tuple(_build(skill, file) for skill in found for file in skill.manifest.files or () if _is_main(file))
    return _Snapshot(version, listed, found)


def _build_manifest(row: StoredSkill) -> _StoredManifest:
    """Return the manifest of a row. Raises InvalidSkill."""
    permission = tuple(row.permission.split()) or None
    return _StoredManifest(row.pk, row.path, row.build_package().manifest, permission, tuple(row.scopes))


def _is_main(file: SkillFile) -> bool:
    return file.path == SKILL_FILE


def _build(skill: _StoredManifest, file: SkillFile) -> Resource:
    return build_file_resource(
        f"{SCHEME}{quote_path(f'{skill.path}/{file.path}')}",
        skill.manifest if _is_main(file) else None,
        name=f"{skill.manifest.name}/{file.path}",
        size=file.size,
        read=partial(_read_file, skill.pk, file.path),
        is_listed=_is_main(file),
        permission=skill.permission,
        scopes=skill.scopes,
        source=f"stored skill {skill.path}",
    )


def _read_file(pk: int, path: str) -> Any:
    """Return the content of a file of a published skill; None if it was changed in the meantime."""
    if path == SKILL_FILE:
        text = StoredSkill._default_manager.filter(pk=pk, enabled=True).values_list("text", flat=True).first()
        return None if text is None else build_exact_contents(text.encode(), "text/markdown")
    files = StoredSkillFile._default_manager.filter(skill=pk, skill__enabled=True, path=path)
    data = files.values_list("data", flat=True).first()
    return None if data is None else build_exact_contents(bytes(data), guess_media_type(path))
