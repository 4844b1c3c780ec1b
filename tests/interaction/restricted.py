"""Handlers of which not everybody may use each: some take a permission, some scopes, some both."""

import functools
from collections.abc import Callable
from typing import Any

import mcp_django
from mcp_django import Context
from tests.interaction.checkpoints import CHECKPOINTS

HERE = "restricted"
WRITE, READ = "notes:write", "notes:read"
tool = functools.partial(mcp_django.tool, server=HERE)
resource = functools.partial(mcp_django.resource, server=HERE)
prompt = functools.partial(mcp_django.prompt, server=HERE)
completion = functools.partial(mcp_django.completion, server=HERE)


def is_ann(principal: Any) -> bool:
    """A permission that is a function, as projects write them for what Django has no permission for."""
    return bool(principal.user.username == "ann")


async def is_ann_they_say(principal: Any) -> bool:
    """The same, of a project that has to ask somebody."""
    return is_ann(principal)


GUARDS: dict[str, dict[str, Any]] = {
    "open": {},
    "users": {"permission": "auth.view_user"},
    "groups": {"permission": "auth.view_group"},
    "anns": {"permission": is_ann},
    "asked": {"permission": is_ann_they_say},
    "stepped": {"scopes": [WRITE, READ]},
    "users_stepped": {"permission": "auth.view_user", "scopes": [WRITE]},
}
"""What each thing that is called so takes. Of every kind of primitive there is one for each."""


def _declare(name: str, guard: dict[str, Any]) -> None:
    @tool(name=name, **guard)
    async def run(ctx: Context, times: int = 1) -> str:
        """Say something on the way, and what it is called at the end."""
        CHECKPOINTS.note(f"{name} ran")
        await ctx.report_progress(1)
        return name * times

    @resource(f"restricted://{name}", name=name, **guard)
    async def read() -> str:
        """What it is called."""
        CHECKPOINTS.note(f"{name} ran")
        return name

    @resource(f"restricted://{name}/{{number}}", name=f"{name}_numbered", **guard)
    async def read_numbered(number: int) -> str:
        """What it is called, and its number."""
        CHECKPOINTS.note(f"{name} ran")
        return f"{name} {number}"

    @prompt(name=name, **guard)
    async def say(word: str) -> str:
        """What it is called."""
        CHECKPOINTS.note(f"{name} ran")
        return f"{name} {word}"

    def complete(target: str, argument: str) -> Callable[..., Any]:
        return completion(target, argument)(_words(name))

    complete(name, "word")
    complete(f"restricted://{name}/{{number}}", "number")


def _words(name: str) -> Callable[..., Any]:
    async def words(value: str) -> list[str]:
        CHECKPOINTS.note(f"{name} ran")
        return [name]

    return words


for _name, _guard in GUARDS.items():
    _declare(_name, _guard)
