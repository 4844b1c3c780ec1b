"""Skills among the resources of a server: the caller's skills, their entries, and their directories.

The resource of a `SKILL.md` carries its manifest in its metadata. Mounts and proxies copy resources with their
metadata, so the skills of other servers are found in the same way, at the URIs that the host gives them.
"""

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from mcp_django.extensions import Call
from mcp_django.extensions.calls import RESOURCES, Context
from mcp_django.extensions.errors import InvalidParams
from mcp_django.extensions.primitives import Primitive, Resource, get_providers
from mcp_django.protocol.skills import (
    DIRECTORY_MEDIA_TYPE,
    MANIFEST_KEY,
    SKILL_FILE,
    SkillFile,
    SkillManifest,
    decode,
    get_directory_uri,
)
from mcp_django.protocol.uri import quote_path
from mcp_django.providers.files import BINARY, TEXT, guess_media_type, is_binary_type
from mcp_django.types import BlobResourceContents, TextResourceContents


class ServedSkill(NamedTuple):
    """A skill that the caller may read."""

    uri: str
    """URI of its SKILL.md."""
    manifest: SkillManifest
    resource: Resource

    @property
    def directory_uri(self) -> str:
        return get_directory_uri(self.uri)

    def to_entry(self) -> dict[str, Any]:
        """Return the entry of the skill."""
        return self.manifest.to_entry(self.uri)


class ServedSkills(NamedTuple):
    """The listed skills that the caller may read, sorted by URI."""

    skills: Sequence[ServedSkill]
    is_private: bool
    """True if other callers may have other skills."""


def get_manifest(resource: object) -> SkillManifest | None:
    """Return the manifest of a `SKILL.md`; None for any other resource."""
    manifest = resource.metadata.get(MANIFEST_KEY) if isinstance(resource, Resource) else None
    return manifest if isinstance(manifest, SkillManifest) else None


async def collect_skills(call: Call) -> ServedSkills:
    """Return the skills of a server that the caller may read."""
    authorizer = call.server.ports.authorizer
    if authorizer.version is None:
        await authorizer.refresh()
    return await _select_visible(call, await call.server.listings.collect(call, RESOURCES))


async def collect_local_skills(call: Call) -> ServedSkills:
    """Return the skills that the caller may read, without those of remote servers, which may be slow."""
    context = Context(call)
    providers = [provider for provider in get_providers(call, "resources") if not provider.is_remote]
    items = {item.key: item for provider in providers for item in await provider.resources(context)}
    items |= {item.key: item for item in call.server.registry.resources}
    return await _select_visible(call, [items[key] for key in sorted(items)])


async def _select_visible(call: Call, items: Iterable[Primitive]) -> ServedSkills:
    authorizer = call.server.ports.authorizer
    found = [
        ServedSkill(item.key, manifest, item)
        for item in items
        if isinstance(item, Resource) and (manifest := get_manifest(item)) is not None
    ]
    guarded = [skill.resource for skill in found if authorizer.is_restricted(skill.resource)]
    hidden = await authorizer.find_hidden_keys(call.principal, guarded) if guarded else frozenset()
    is_private = bool(guarded) or call.server.options.private_lists or has_remote_provider(call)
    return ServedSkills([skill for skill in found if skill.uri not in hidden], is_private)


def has_remote_provider(call: Call) -> bool:
    """Return True if skills may come from other servers, which decide by the caller themselves."""
    return any(provider.is_remote for provider in call.server.providers)


def list_directory(skills: Iterable[ServedSkill], uri: str) -> list[dict[str, Any]]:
    """Return the direct children of a directory of a skill, as entries of resources.

    Raises InvalidParams for a file and for an unknown directory.
    """
    wanted = _normalize(uri)
    for skill in skills:
        root = _normalize(skill.directory_uri)
        if skill.manifest.files is not None and (wanted == root or wanted.startswith(root + "/")):
            children = _list_children(skill, skill.manifest.files, wanted[len(root) + 1 :])
            if children is not None:
                return children
    raise InvalidParams("Unknown directory of a skill")


def _list_children(skill: ServedSkill, files: Sequence[SkillFile], path: str) -> list[dict[str, Any]] | None:
    """Return the children of the directory at `path`; None if the skill has no such directory."""
    prefix = f"{path}/" if path else ""
    base = f"{skill.directory_uri}/{quote_path(prefix)}"
    children: dict[str, dict[str, Any]] = {}
    for file in files:
        if not file.path.startswith(prefix):
            continue
        name, slash, _ = file.path.removeprefix(prefix).partition("/")
        entry: dict[str, Any] = {"uri": base + quote_path(name), "name": name}
        if slash:
            children[name] = entry | {"mimeType": DIRECTORY_MEDIA_TYPE}
        else:
            is_skill_file = name == SKILL_FILE
            media_type = "text/markdown" if is_skill_file else guess_media_type(name)
            children[name] = entry | ({"mimeType": media_type} if media_type else {}) | {"size": file.size}
            if is_skill_file and not prefix:
                children[name] |= {"name": skill.manifest.name, "description": skill.manifest.description}
    return [children[name] for name in sorted(children)] or None


def _normalize(uri: str) -> str:
    """Return a URI with its path decoded, to compare spellings of the same directory."""
    scheme, separator, path = uri.partition("://")
    decoded = decode(path)
    return uri if decoded is None else f"{scheme}{separator}{decoded}".removesuffix("/")


def build_exact_contents(data: bytes, mime_type: str | None) -> TextResourceContents | BlobResourceContents:
    """Build contents that keep each byte: UTF-8 as text, with its byte order mark, and a blob otherwise."""
    if not is_binary_type(mime_type) and b"\0" not in data:
        try:
            return TextResourceContents(data.decode(), mime_type=mime_type or TEXT)
        except UnicodeError:
            pass
    return BlobResourceContents(data, mime_type=mime_type or BINARY)
