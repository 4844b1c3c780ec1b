"""Fallbacks for clients without the extension: instructions, prompts and a tool."""

from collections.abc import Iterable
from typing import Any

from mcp_django.contrib.skills.manifests import ServedSkill, collect_local_skills, collect_skills
from mcp_django.extensions import Call
from mcp_django.extensions.calls import Context, get_logger, truncate
from mcp_django.extensions.errors import ResourceNotFound, ToolError
from mcp_django.extensions.primitives import (
    Handler,
    Prompt,
    Provider,
    Tool,
    ToolResult,
    build_tool,
    compile_prompt_parameters,
    is_injected,
    read_contents,
)
from mcp_django.protocol.skills import DYNAMIC, SKILL_FILE
from mcp_django.protocol.uri import quote_path
from mcp_django.types import BlobResourceContents, EmbeddedResource, PromptMessage, TextContent, ToolAnnotations

logger = get_logger("mcp_django.skills")

TOOL_NAME = "load_skill"
MAX_NAMED_SKILLS = 20
"""Maximum skills that the instructions and errors name."""
MAX_SUMMARY_CHARACTERS = 160


async def build_instructions(call: Call) -> str | None:
    """Return one line that names the skills that the caller may read; None without any."""
    try:
        skills = (await collect_local_skills(call)).skills
    except Exception:
        # Clients that cannot list skills can still connect.
        logger.exception("The skills could not be listed for the instructions")
        return None
    if not skills:
        return None
    named = "; ".join(f"{skill.uri} ({_summarize(skill)})" for skill in skills[:MAX_NAMED_SKILLS])
    more = f"; {len(skills) - MAX_NAMED_SKILLS} more in skills/list" if len(skills) > MAX_NAMED_SKILLS else ""
    return f"Skills, to be read as resources before a task that they describe: {named}{more}."


def _summarize(skill: ServedSkill) -> str:
    text = " ".join(skill.manifest.description.split()).rstrip(".")
    return truncate(text, MAX_SUMMARY_CHARACTERS)


class SkillFallbacks(Provider):
    """A prompt for each skill, and the tool `load_skill`, over the skills that the caller may read."""

    def __init__(self, *, has_prompts: bool, has_tool: bool) -> None:
        self.offers = frozenset(
            {"resources"} | ({"prompts"} if has_prompts else set()) | ({"tools"} if has_tool else set())
        )
        self._tools = [_build_tool()] if has_tool else []

    def for_mounting(self) -> None:
        """Return None: the host decides about its own fallbacks."""

    async def tools(self, ctx: Context) -> Iterable[Tool]:
        return self._tools

    async def prompts(self, ctx: Context) -> Iterable[Prompt]:
        names: dict[str, Prompt] = {}
        for skill in (await collect_skills(ctx.call)).skills:
            names.setdefault(skill.manifest.name, _build_prompt(skill))
        return list(names.values())


def _build_prompt(skill: ServedSkill) -> Prompt:
    async def get(ctx: Context) -> list[PromptMessage]:
        contents = await read_contents(skill.uri, ctx)
        return [PromptMessage("user", EmbeddedResource(one)) for one in contents]

    parameters = compile_prompt_parameters(get, is_injected=is_injected)
    return Prompt(
        name=skill.manifest.name,
        description=skill.manifest.description,
        permission=skill.resource.permission,
        scopes=skill.resource.scopes,
        handler=Handler(get, parameters.injected, atomic=()),
        parameters=parameters,
        source=f"skill {skill.uri}",
    )


def _build_tool() -> Tool:
    async def load_skill(ctx: Context, skill: str, path: str = SKILL_FILE) -> ToolResult:
        """Load a skill: instructions for a task on this server.

        Args:
            skill: The name or the URI of the skill. An unknown name returns the list of all skills.
            path: A file of the skill that its instructions refer to.
        """
        found = await _find_skill(ctx, skill)
        try:
            contents = await read_contents(f"{found.directory_uri}/{quote_path(path)}", ctx)
        except ResourceNotFound:
            raise ToolError(
                f"The skill {found.manifest.name} has no file {path!r:.200}; {_list_files(found)}"
            ) from None
        blocks: list[Any] = [
            EmbeddedResource(one) if isinstance(one, BlobResourceContents) else TextContent(one.text)
            for one in contents
        ]
        return ToolResult([*blocks, TextContent(_list_files(found))] if path == SKILL_FILE else blocks)

    return build_tool(load_skill, TOOL_NAME, annotations=ToolAnnotations(read_only=True, open_world=False))


async def _find_skill(ctx: Context, name: str) -> ServedSkill:
    """Return the skill with this name or URI. Raises ToolError with the known ones."""
    skills = (await collect_skills(ctx.call)).skills
    for skill in skills:
        if name in (skill.uri, skill.directory_uri, skill.manifest.name):
            return skill
    known = "; ".join(f"{skill.manifest.name}: {_summarize(skill)}" for skill in skills[:MAX_NAMED_SKILLS])
    raise ToolError(f"Unknown skill {name!r:.200}. Known skills: {known or 'none'}.")


def _list_files(skill: ServedSkill) -> str:
    files = skill.manifest.files
    paths = DYNAMIC if files is None else ", ".join(file.path for file in files)
    return f"Files of the skill {skill.manifest.name}: {paths}."
