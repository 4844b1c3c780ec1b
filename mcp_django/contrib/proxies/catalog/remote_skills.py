"""Skills of a remote server: their entries beside its resources, and the bytes of their files.

Each skill joins the resource of its `SKILL.md`, with the manifest in its metadata. So it gets the URI, the permission
and the scopes of the proxy's resources, and the extension of the host lists it. Digests stay those of the remote
server, whose bytes are passed on unchanged.
"""

from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any, NamedTuple

from mcp_django.client import CallError, Client, ClientError
from mcp_django.extensions.calls import get_logger, jsonrpc, sanitize_label
from mcp_django.extensions.errors import DeclarationError, ToolError
from mcp_django.extensions.primitives import Resource, convert_failures
from mcp_django.protocol.skills import (
    GET_METHOD,
    LIST_METHOD,
    MANIFEST_KEY,
    SKILL_FILE,
    SKILLS_IDENTIFIER,
    InvalidSkill,
    SkillManifest,
    find_file_uris,
    find_path,
    get_directory_uri,
    parse_entry,
)
from mcp_django.schema.skill_files import decode_contents, verify_bytes

logger = get_logger("mcp_django.client")

Wire = dict[str, Any]
SKILL_MEMBER = "mcp_django.skill"
"""Member of an entry of a resource: the entry of its skill.

A member of this name from the remote server is removed.
"""
REMOTE_FILES_KEY = "remote_skill_files"
"""Key of a resource's `metadata` with the remote URIs of the files of a skill, by their paths."""
REMOTE_FILE_KEY = "remote_skill_file"
"""Key of a resource's `metadata` with the `RemoteFile` of a file of a skill."""
MAX_PAGES, MAX_SKILLS, MAX_LIST_BYTES = 100, 1000, 16 * 1024 * 1024
"""Maximum pages, skills and bytes of `skills/list`."""


class RemoteFile(NamedTuple):
    """A file of a remote skill."""

    skill_uri: str
    """Remote URI of the `SKILL.md` of its skill."""
    manifest: SkillManifest
    path: str
    uri: str
    """Remote URI of the file."""

    def verify(self, manifest: SkillManifest, result: Wire) -> None:
        """Check the bytes of a result of `resources/read` by a manifest. Raises InvalidSkill."""
        verify_bytes(manifest, self.path, decode_contents(result, self.uri))


async def fetch_skills(client: Client, timeout: float) -> list[Wire]:
    """Fetch the valid entries of all pages; none if the server lacks the extension. Raises ClientError."""
    if SKILLS_IDENTIFIER not in (client.capabilities.extensions or {}):
        return []
    found: dict[str, Wire] = {}
    cursor, bytes_left = Wire(), MAX_LIST_BYTES
    for _ in range(MAX_PAGES):
        try:
            page = await client.exchange(LIST_METHOD, cursor, timeout=timeout)
        except CallError as problem:
            logger.warning("Listing the skills of the server %r failed: error %d", client.alias, problem.code)
            break
        given, next_cursor = page.get("skills"), page.get("nextCursor")
        for entry in given if type(given) is list else ():
            try:
                with convert_failures("the entry"):
                    uri, _ = parse_entry(entry)
                    bytes_left -= len(jsonrpc.dumps(entry))
            except DeclarationError as problem:
                reason = sanitize_label(str(problem))
                logger.warning("Invalid skill from the server %r skipped: %s", client.alias, reason)
                continue
            if bytes_left < 0 or len(found) >= MAX_SKILLS:
                logger.warning("List truncated, too large: skills of the server %r", client.alias)
                return list(found.values())
            found.setdefault(uri, entry)
        if type(next_cursor) is not str:
            break
        cursor = {"cursor": next_cursor}
    return list(found.values())


def join_skills(entries: Iterable[Any], skills: Iterable[Wire]) -> list[Any]:
    """Return the entries of resources with their skills.

    A `SKILL.md` that is not listed gets a new entry.
    """
    waiting = {skill["uri"]: skill for skill in skills}
    joined: list[Any] = []
    for entry in entries:
        if type(entry) is dict:
            entry = {key: value for key, value in entry.items() if key != SKILL_MEMBER}
            uri = entry.get("uri")
            skill = waiting.pop(uri, None) if type(uri) is str else None
            entry = entry if skill is None else {**entry, SKILL_MEMBER: skill}
        joined.append(entry)
    for uri, skill in waiting.items():
        named = {key: skill["frontmatter"][key] for key in ("name", "description")}
        joined.append({"uri": uri, **named, "mimeType": "text/markdown", SKILL_MEMBER: skill})
    return joined


def build_metadata(entry: Wire) -> Wire:
    """Return the metadata of the resource of a `SKILL.md`; empty for any other entry."""
    if SKILL_MEMBER not in entry:
        return {}
    skill = entry[SKILL_MEMBER]
    uri, manifest = parse_entry(skill)
    return {
        MANIFEST_KEY: manifest,
        REMOTE_FILES_KEY: find_file_uris(skill),
        REMOTE_FILE_KEY: RemoteFile(uri, manifest, SKILL_FILE, uri),
    }


def find_file(resources: Sequence[Resource], uri: str) -> RemoteFile | None:
    """Return the file of a skill at this local URI, by the resources of the `SKILL.md` files."""
    for resource in resources:
        manifest = resource.metadata.get(MANIFEST_KEY)
        path = None if manifest is None else find_path(get_directory_uri(resource.uri), uri)
        remote = None if path is None else resource.metadata[REMOTE_FILES_KEY].get(path)
        if path is not None and remote is not None:
            known: RemoteFile = resource.metadata[REMOTE_FILE_KEY]
            return known._replace(path=path, uri=remote)
    return None


async def verify_file(file: RemoteFile, result: Wire, refresh: Callable[[], Awaitable[Client]], timeout: float) -> None:
    """Check the bytes of a file by the entry of its skill, and by a new entry if they differ.

    `refresh` invalidates the lists, which must not repeat old digests, and returns a client. Raises ToolError.
    """
    try:
        return file.verify(file.manifest, result)
    except InvalidSkill:
        client = await refresh()
    try:
        file.verify(await _fetch_manifest(client, file.skill_uri, timeout), result)
    except InvalidSkill as problem:
        raise ToolError(f"The server {client.alias!r} sent a file that differs from its skill: {problem}") from None


async def _fetch_manifest(client: Client, skill_uri: str, timeout: float) -> SkillManifest:
    """Fetch the current manifest of a skill. Raises InvalidSkill."""
    try:
        result = await client.exchange(GET_METHOD, {"uri": skill_uri}, timeout=timeout)
    except ClientError:
        raise InvalidSkill("the entry of the skill could not be fetched again") from None
    uri, manifest = parse_entry(result.get("skill"))
    if uri != skill_uri:
        raise InvalidSkill("the entry is that of another skill")
    return manifest
