"""Handlers of which not everybody may use each: some take a permission, some scopes, some both."""

import functools
from collections.abc import Callable
from typing import Any

import mcp_django
from mcp_django import Context
from tests.interaction.checkpoints import CHECKPOINTS

SERVER = "restricted"
WRITE, READ = "notes:write", "notes:read"
tool = functools.partial(mcp_django.tool, server=SERVER)
resource = functools.partial(mcp_django.resource, server=SERVER)
prompt = functools.partial(mcp_django.prompt, server=SERVER)
completion = functools.partial(mcp_django.completion, server=SERVER)


def is_ann(principal: Any) -> bool:
    """A permission that is a function, for a rule beside the permissions of Django."""
    return bool(principal.user.username == "ann")


async def is_ann_async(principal: Any) -> bool:
    """The same as a coroutine function."""
    return is_ann(principal)


GUARDS: dict[str, dict[str, Any]] = {
    "open": {},
    "users": {"permission": "auth.view_user"},
    "groups": {"permission": "auth.view_group"},
    "anns": {"permission": is_ann},
    "asked": {"permission": is_ann_async},
    "stepped": {"scopes": [WRITE, READ]},
    "users_stepped": {"permission": "auth.view_user", "scopes": [WRITE]},
}
"""The options of the primitives of each name; there is one of every kind for each name."""


def _declare(name: str, guard: dict[str, Any]) -> None:
    @tool(name=name, **guard)
    async def run(ctx: Context, times: int = 1) -> str:
        """Report progress, and return the name."""
        CHECKPOINTS.note(f"{name} ran")
        await ctx.report_progress(1)
        return name * times

    @resource(f"restricted://{name}", name=name, **guard)
    async def read() -> str:
        """Return the name."""
        CHECKPOINTS.note(f"{name} ran")
        return name

    @resource(f"restricted://{name}/{{number}}", name=f"{name}_numbered", **guard)
    async def read_numbered(number: int) -> str:
        """Return the name and the number."""
        CHECKPOINTS.note(f"{name} ran")
        return f"{name} {number}"

    @prompt(name=name, **guard)
    async def render(word: str) -> str:
        """Return the name."""
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
