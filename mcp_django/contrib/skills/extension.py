"""The extension: lists of skills, entries, and directories."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from django.core.checks import Error

from mcp_django.contrib.skills.fallbacks import SkillFallbacks, build_instructions
from mcp_django.contrib.skills.manifests import (
    ServedSkill,
    collect_skills,
    get_manifest,
    has_remote_provider,
    list_directory,
)
from mcp_django.extensions import Call, Extension, Revision, create_cursor, method, read_cursor
from mcp_django.extensions.calls import SHARED_OWNER, Context
from mcp_django.extensions.errors import InvalidParams, ResourceNotFound
from mcp_django.extensions.primitives import Provider, check_permission, find_resource
from mcp_django.protocol.skills import GET_METHOD, LIST_METHOD, READ_DIRECTORY_METHOD, SKILLS_IDENTIFIER
from mcp_django.protocol.uri import MAX_URI_LENGTH
from mcp_django.schema.frontmatter import FrontmatterError, parse_frontmatter

MAX_PAGE_SKILLS = 50
MAX_PAGE_FILES = 5000
"""Maximum files in the entries of one page, unless a single skill has more."""


class SkillsExtension(Extension):
    """Skills: lists, entries and directories of the skills that the providers of a server have.

    The options serve clients without the extension. `instructions` names the skills in the instructions of the server,
    `prompts` adds a prompt for each skill, and `tool` adds the tool `load_skill`.
    """

    identifier = SKILLS_IDENTIFIER

    def __init__(self, *, instructions: bool = True, prompts: bool = False, tool: bool = False) -> None:
        self._has_instructions = instructions
        self._fallbacks = SkillFallbacks(has_prompts=prompts, has_tool=tool)

    def get_providers(self) -> Sequence[Provider]:
        return (self._fallbacks,)

    async def get_instructions(self, call: Call) -> str | None:
        return await build_instructions(call) if self._has_instructions else None

    def get_settings(self, revision: Revision) -> Mapping[str, Any]:
        return {"directoryRead": True}

    @method(LIST_METHOD, requires_declaration=False)
    async def list_skills(self, ctx: Context) -> dict[str, Any]:
        """Return a page of the entries of the skills that the caller may read."""
        call = ctx.call
        found = await collect_skills(call)
        owner = call.principal.key if found.is_private else SHARED_OWNER
        after = read_cursor(call, LIST_METHOD, owner)
        rest = [skill for skill in found.skills if after is None or skill.uri > after]
        page = _cut_page(rest, min(call.server.options.page_size or MAX_PAGE_SKILLS, MAX_PAGE_SKILLS))

        body: dict[str, Any] = {"skills": [skill.to_entry() for skill in page]}
        if len(page) < len(rest):
            body["nextCursor"] = create_cursor(call, LIST_METHOD, owner, page[-1].uri)
        return body | _build_cache_fields(call, is_private=found.is_private)

    @method(GET_METHOD, requires_declaration=False)
    async def get_skill(self, ctx: Context, uri: str) -> dict[str, Any]:
        """Return the entry of a skill, listed or not. Raises InvalidParams for any other URI."""
        call = ctx.call
        unknown = InvalidParams("Unknown skill")
        try:
            resource, _ = await find_resource(call, uri[:MAX_URI_LENGTH])
        except ResourceNotFound:
            raise unknown from None
        manifest = get_manifest(resource)
        if manifest is None:
            raise unknown
        await check_permission(call, resource, unknown)
        is_private = call.server.ports.authorizer.is_restricted(resource) or has_remote_provider(call)
        return {"skill": manifest.to_entry(resource.key)} | _build_cache_fields(call, is_private=is_private)

    @method(READ_DIRECTORY_METHOD, requires_declaration=False)
    async def read_directory(self, ctx: Context, uri: str) -> dict[str, Any]:
        """Return the direct children of a directory. Raises InvalidParams for a file and an unknown directory."""
        call = ctx.call
        found = await collect_skills(call)
        children = list_directory(found.skills, uri[:MAX_URI_LENGTH])
        kind = f"{READ_DIRECTORY_METHOD} {uri}"
        owner = call.principal.key if found.is_private else SHARED_OWNER
        after = read_cursor(call, kind, owner)
        rest = [child for child in children if after is None or child["uri"] > after]
        rest.sort(key=lambda child: str(child["uri"]))
        page = rest[: call.server.options.page_size]

        body: dict[str, Any] = {"resources": page}
        if len(page) < len(rest):
            body["nextCursor"] = create_cursor(call, kind, owner, page[-1]["uri"])
        return body | _build_cache_fields(call, is_private=found.is_private)

    def check(self) -> Iterable[Any]:
        """Yield an error if PyYAML is missing."""
        try:
            parse_frontmatter(b"---\nname: check\n---\n")
        except FrontmatterError as problem:
            yield Error(f"The extension Skills cannot read skills: {problem}.", id="mcp_skills.E002")


def _cut_page(skills: list[ServedSkill], size: int) -> list[ServedSkill]:
    """Return the first skills, as many as fit into a page."""
    files = 0
    for position, skill in enumerate(skills[:size]):
        files += len(skill.manifest.files or ())
        if files > MAX_PAGE_FILES and position:
            return skills[:position]
    return skills[:size]


def _build_cache_fields(call: Call, *, is_private: bool) -> dict[str, Any]:
    """Return the fields for caches. Clients check them in both eras, and for directories."""
    options = call.server.options
    scope = "private" if is_private or options.private_lists else "public"
    return {"ttlMs": int(options.cache_ttl * 1000), "cacheScope": scope}
