"""Skill about the models of a server, written for each caller.

It names the toolsets and tools that the caller may use.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from mcp_django.contrib.skills.provider import SCHEME
from mcp_django.extensions.calls import Context, get_logger
from mcp_django.extensions.errors import DeclarationError
from mcp_django.extensions.primitives import Handler, Permission, Provider, Resource, get_client_name
from mcp_django.orm import ModelToolset
from mcp_django.orm.tools.base import find_served_tool
from mcp_django.protocol.skills import MANIFEST_KEY, SKILL_FILE, SkillManifest
from mcp_django.types import TextResourceContents

logger = get_logger("mcp_django.skills")

NAME = "working-with-models"
DESCRIPTION = (
    "How to find, read, count and change the records of this project with its tools. "
    "Use it before the first call of a tool that lists, aggregates or changes records."
)
ADVICE = (
    (
        {"describe"},
        (
            "Call `describe` once for each kind of record, before its other tools. It has the fields with their "
            "choices, and the arguments of all tools, with examples. Do not guess names of fields."
        ),
    ),
    (
        {"list"},
        (
            "Filter on the server: pass `filters`, and `search` for words. Name the `fields` that you need. For more "
            "records, pass `next_cursor` as `cursor`, and repeat the other arguments unchanged."
        ),
    ),
    (
        {"count", "aggregate"},
        "Count, sum and average with `count` and `aggregate`. Never add up listed records: a page is only a part.",
    ),
    ({"get"}, "Read one record by its key with `get` before you change it or quote it."),
    (
        {"create", "update", "delete"},
        (
            "Before a change, try it with `dry_run`: it returns the errors, or the effects, and saves nothing. Tell "
            "the user about the effects first."
        ),
    ),
    (
        {"update", "delete"},
        "Pass the version that you have read as `if_match`. If the record has changed, read it again.",
    ),
    (
        {"create", "update"},
        "Pass an `idempotency_key`, and repeat it if you repeat the call after a lost answer.",
    ),
)
"""Sentences, each with the tools of which one must be visible."""


class _VisibleModel(NamedTuple):
    """A model, with the tools that the caller may use."""

    toolset: ModelToolset
    tools: tuple[str, ...]


class ModelSkill(Provider):
    """The dynamic skill `working-with-models`, about the models that the caller may use.

    It names each model with its tools, and how the tools work together. `path` precedes its name in the URI.
    """

    offers = frozenset({"resources"})

    def __init__(
        self, *, path: str = "models", permission: Permission | None = None, scopes: Sequence[str] = ()
    ) -> None:
        if not all(name.isalnum() and name.isascii() for name in path.split("/")):
            raise DeclarationError(f"ModelSkill: {path!r} is an invalid path; write it with letters, like 'models'")
        frontmatter = {"name": NAME, "description": DESCRIPTION}
        self._resource = Resource(
            uri=f"{SCHEME}{path}/{NAME}/{SKILL_FILE}",
            name=NAME,
            description=DESCRIPTION,
            mime_type="text/markdown",
            permission=permission,
            scopes=tuple(scopes),
            metadata={MANIFEST_KEY: SkillManifest(frontmatter, None)},
            handler=Handler(_write, {"ctx": Context}, atomic=()),
            source="ModelSkill",
        )

    def get_permission_dependent(self) -> frozenset[str]:
        return self.offers if self._resource.permission is not None else frozenset()

    async def resources(self, ctx: Context) -> Iterable[Resource]:
        return (self._resource,)

    async def resource(self, uri: str, ctx: Context) -> Resource | None:
        return self._resource if uri == self._resource.uri else None


async def _write(ctx: Context) -> TextResourceContents:
    """Write the skill for the caller."""
    models = await _find_models(ctx)
    lines = ["---", f"name: {NAME}", f'description: "{DESCRIPTION}"', "---", "", "# Working with the records", ""]
    if not models:
        lines.append("No tool for records is available to you. Ask the user to get access, and do not guess data.")
    tools = {verb for model in models for verb in model.tools}
    lines += [f"- {text}" for verbs, text in ADVICE if verbs & tools]
    if models:
        lines += ["- A record or tool that you cannot see may exist for other users. Say so instead of inventing it."]
    for model in models:
        lines += ["", *_describe(model, ctx)]
    return TextResourceContents("\n".join(lines) + "\n", mime_type="text/markdown")


def _describe(model: _VisibleModel, ctx: Context) -> list[str]:
    toolset, meta = model.toolset, model.toolset.model._meta
    title = str(meta.verbose_name_plural)
    names = ", ".join(f"`{get_client_name(ctx, toolset.tool_name(verb))}`" for verb in model.tools)
    lines = [f"## {title[:1].upper()}{title[1:]}", "", f"Tools: {names}."]
    if toolset.is_generic:
        lines.append(f'Pass `model: "{meta.label}"`.')
    return lines


async def _find_models(ctx: Context) -> list[_VisibleModel]:
    """Return the models with a tool that the caller may use, by the decision that lists the tools."""
    authorizer = ctx.server.ports.authorizer
    toolsets = [one for one in ctx.server.registry.toolsets if isinstance(one, ModelToolset)]
    tools = {
        toolset: {verb: tool for verb in toolset.tools if (tool := find_served_tool(toolset, verb)) is not None}
        for toolset in toolsets
    }
    guarded = [tool for named in tools.values() for tool in named.values() if authorizer.is_restricted(tool)]
    hidden = await authorizer.find_hidden_keys(ctx.principal, guarded) if guarded else frozenset()

    models: list[_VisibleModel] = []
    for toolset, named in sorted(tools.items(), key=lambda pair: pair[0].model._meta.label):
        visible = [verb for verb, tool in named.items() if tool.key not in hidden]
        allowed = await ctx.server.ports.executor.run(_apply_hooks, toolset, visible, ctx)
        if allowed:
            models.append(_VisibleModel(toolset, allowed))
    return models


def _apply_hooks(toolset: ModelToolset, verbs: Sequence[str], ctx: Context) -> tuple[str, ...]:
    """Return the tools that the hooks of the project allow. A hook that raises denies."""
    answers: dict[str, bool] = {}
    for action in {toolset.get_tool(verb).metadata["action"] for verb in verbs}:
        hook = f"has_{action}_permission"
        try:
            answers[action] = not toolset.is_overridden(hook) or bool(getattr(toolset, hook)(ctx))
        except Exception:
            logger.exception("Permission hook failed, hiding the model: %s of %s", hook, toolset.source)
            answers[action] = False
    return tuple(verb for verb in verbs if answers[toolset.get_tool(verb).metadata["action"]])
