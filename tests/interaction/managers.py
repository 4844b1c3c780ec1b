"""A server whose context managers surround handlers: one on the event loop, one on the thread of the call."""

import asyncio
import functools
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from contextvars import ContextVar
from typing import Annotated, Any

from django.core.exceptions import PermissionDenied

import mcp_django
from mcp_django import Context, Depends, ToolError
from mcp_django.lowlevel import Handlers
from mcp_django.providers import Provider
from mcp_django.types import TaskOptions
from tests.interaction.actors import act_as, get_actors
from tests.interaction.checkpoints import CHECKPOINTS

SERVER = "managers"
SERVER_SETTINGS = {
    "NAME": SERVER,
    "STORED": False,
    "AROUND": ["tests.interaction.managers.in_scope", "tests.interaction.managers.as_the_user"],
    "PROVIDERS": ["tests.interaction.managers.rooms"],
    "EXTENSIONS": ["mcp_django.contrib.tasks.Tasks"],
}
SCOPE: ContextVar[str] = ContextVar("scope", default="none")
THREAD = threading.local()
ENDINGS: list[str] = []
"""Names of the exceptions that the managers saw, "" for none."""
tool = functools.partial(mcp_django.tool, server=SERVER)


@asynccontextmanager
async def in_scope(ctx: Context) -> AsyncIterator[None]:
    """Set a variable on the event loop."""
    token = SCOPE.set(f"scope of {ctx.principal.subject}")
    try:
        yield
    finally:
        SCOPE.reset(token)


@contextmanager
def as_the_user(ctx: Context) -> Iterator[None]:
    """Set variables of all kinds on the thread of the call."""
    if ctx.principal.subject == "bob":
        raise PermissionDenied("Bob may do nothing here")
    THREAD.actor = ctx.principal.subject
    CHECKPOINTS.note("entered")
    ending = ""
    try:
        with act_as(ctx.principal.subject):
            yield
    except BaseException as problem:
        ending = type(problem).__name__
        raise
    finally:
        del THREAD.actor
        ENDINGS.append(ending)
        CHECKPOINTS.note("left")


def get_all() -> list[str]:
    """Return the values of all variables, that of the thread apart."""
    return [SCOPE.get(), *get_actors()]


def get_thread_actor() -> str:
    """Return the value of the thread."""
    return getattr(THREAD, "actor", "anonymous")


@tool()
async def surroundings(thread: Annotated[str, Depends(get_thread_actor)]) -> list[str]:
    """Return the actors, with a plain dependency."""
    return [*get_all(), thread]


@tool()
def surroundings_in_a_thread() -> list[str]:
    """Return the actors, in a plain function."""
    return [*get_all(), get_thread_actor()]


@tool()
async def surroundings_after_a_question(ctx: Context) -> list[str]:
    """Return the actors before and after a question."""
    before = await ctx.server.ports.executor.run(get_thread_actor)
    await ctx.elicit("Go on?", None, key="on")
    return [*get_all(), before, await ctx.server.ports.executor.run(get_thread_actor)]


@tool()
def surroundings_after_a_question_in_a_thread(ctx: Context) -> list[str]:
    """The same in a plain function."""
    before = get_thread_actor()
    ctx.sync.elicit("Go on?", None, key="on")
    return [*get_all(), before, get_thread_actor()]


@tool()
async def surroundings_of_a_job(ctx: Context) -> str:
    """Record the actors of background work."""
    ctx.background(lambda: CHECKPOINTS.note(f"job of {[*get_all(), get_thread_actor()]}"))
    return "later"


@tool(task=TaskOptions(grace=0))
async def surroundings_of_a_task(thread: Annotated[str, Depends(get_thread_actor)]) -> str:
    """Record the actors of a task."""
    CHECKPOINTS.note(f"task of {[*get_all(), thread]}")
    return "done"


@tool()
async def refuse() -> str:
    """Fail as a tool may fail."""
    raise ToolError("refused")


@tool()
async def wait_for_ever() -> str:
    """Wait on the event loop."""
    await CHECKPOINTS.wait_at("wait")
    return "done"


@tool(timeout=0.05)
async def time_out() -> str:
    """Wait longer than the limit."""
    await asyncio.Event().wait()
    return "done"


@mcp_django.resource("actor://me", server=SERVER)
def me() -> str:
    """Return the actors, as a resource."""
    return " ".join([*get_all(), get_thread_actor()])


@mcp_django.prompt(server=SERVER)
def introduce(name: str) -> str:
    """Return the actors, as a prompt."""
    return " ".join([*get_all(), get_thread_actor()])


@mcp_django.completion("introduce", "name", server=SERVER)
def complete_name(value: str) -> list[str]:
    """Return the actors, as a completion."""
    return [*get_all(), get_thread_actor()]


def list_tools() -> list[dict[str, Any]]:
    """List one tool for the actor."""
    return [{"name": f"room_{get_thread_actor()}", "description": SCOPE.get(), "inputSchema": {"type": "object"}}]


def call_tool(name: str, arguments: dict[str, Any]) -> str:
    """Return the actors."""
    return " ".join([*get_all(), get_thread_actor()])


rooms: Provider = Handlers(list_tools=list_tools, call_tool=call_tool)
