"""Handlers with unusual return values and exceptions."""

import asyncio
from typing import Any

from mcp_django import Context, ToolResult
from tests.interaction.checkpoints import CHECKPOINTS
from tests.interaction.handlers import completion, prompt, resource, tool


class Unspeakable:
    """A value without a JSON form."""


def _cycle() -> list[Any]:
    items: list[Any] = []
    items.append(items)
    return items


def _deep() -> list[Any]:
    items: list[Any] = []
    for _ in range(5000):
        items = [items]
    return items


BACKGROUND: set[asyncio.Future[None]] = set()
"""Keeps tasks from being collected."""
ODD: dict[str, Any] = {
    "nan": float("nan"),
    "infinity": float("inf"),
    "huge": 2**70,
    "surrogate": "a\ud800b",
    "bytes key": {b"a": 1},
    "cycle": _cycle(),
    "deep": _deep(),
    "object": Unspeakable(),
    "class": Unspeakable,
    "function": _cycle,
}


@tool()
async def odd(kind: str) -> Any:
    """Return something odd."""
    return ODD[kind]


@tool()
async def odd_structured(kind: str) -> ToolResult:
    """Return something odd as structured content."""
    return ToolResult(structured={"value": ODD[kind]})


@tool()
async def odd_number(kind: str) -> float:
    """Return a value that JSON has no number for."""
    value: float = ODD[kind]
    return value


@tool()
async def liar() -> int:
    """Return something other than promised."""
    return "five"  # type: ignore[return-value]


@tool()
async def odd_log(kind: str, ctx: Context) -> str:
    """Log something odd."""
    await ctx.error(ODD[kind])
    return "logged"


@tool()
async def cancel_itself() -> str:
    """End with a cancellation of its own."""
    raise asyncio.CancelledError


@tool()
async def wait_for_the_cancelled() -> str:
    """Wait for a task of its own that was cancelled."""
    task = asyncio.ensure_future(asyncio.Event().wait())
    task.cancel()
    await task
    return "unreachable"


@tool()
async def run_out() -> str:
    """Recurse without an end."""
    return await run_out()


@tool()
def stop_iterating() -> str:
    """Let a StopIteration out of a plain function."""
    raise StopIteration("odd")


@tool()
def exit_from_a_thread() -> str:
    """Call sys.exit, as command-line code does."""
    raise SystemExit("odd")


@tool()
async def exit_from_the_loop() -> str:
    """Call sys.exit on the event loop, which would end the process."""
    raise SystemExit("odd")


@resource("note://exit", name="exit")
async def exit_note() -> str:
    """The same while a resource is read."""
    raise SystemExit("odd")


@prompt()
async def exit_prompt() -> str:
    """The same in a prompt."""
    raise SystemExit("odd")


@completion("exit_prompt", "name")
async def exit_completion(value: str) -> list[str]:
    """The same in a completion."""
    raise SystemExit("odd")


@tool()
async def group_of_errors() -> str:
    """Fail in several tasks at once."""
    async with asyncio.TaskGroup() as group:
        for name in ("a", "b"):
            group.create_task(_fail(name))
    return "unreachable"


async def _fail(name: str) -> None:
    raise RuntimeError(f"swordfish {name}")


@resource("note://odd/{kind}", name="odd")
async def odd_note(kind: str) -> Any:
    """Something odd to read."""
    return ODD[kind]


@prompt()
async def odd_prompt(kind: str) -> Any:
    """An unusual text."""
    return ODD[kind]


@tool()
async def talk_on(ctx: Context) -> str:
    """Leave a task behind that sends messages after the answer."""

    async def talk() -> None:
        await CHECKPOINTS.gate("afterwards").wait()
        await ctx.report_progress(2)
        await ctx.error("too late")
        CHECKPOINTS.note("talked on")

    await ctx.report_progress(1)
    BACKGROUND.add(asyncio.ensure_future(talk()))
    return "done"
