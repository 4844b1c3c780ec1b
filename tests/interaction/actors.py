"""Context variables around handlers, as change logs use them: set by MIDDLEWARE, or by context managers of a server."""

import functools
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from asgiref.local import Local
from django.utils.decorators import async_only_middleware, sync_only_middleware

import mcp_django
from mcp_django import Context
from tests.interaction.checkpoints import CHECKPOINTS

ACTOR: ContextVar[str] = ContextVar("actor", default="anonymous")
LOCAL = Local()
REQUEST: ContextVar[Any] = ContextVar("request")
tool = functools.partial(mcp_django.tool, server="places")


@contextmanager
def act_as(name: str) -> Iterator[None]:
    """Set both kinds of variables, as packages do."""
    token, LOCAL.actor = ACTOR.set(name), name
    try:
        yield
    finally:
        ACTOR.reset(token)
        del LOCAL.actor


@sync_only_middleware
def sync_actor(get_response: Any) -> Any:
    """MIDDLEWARE that knows no async. It reads the name in a header."""

    def middleware(request: Any) -> Any:
        if "X-Actor" not in request.headers:
            return get_response(request)
        REQUEST.set(request)
        with act_as(request.headers["X-Actor"]):
            return get_response(request)

    return middleware


@async_only_middleware
def async_actor(get_response: Any) -> Any:
    """The same on the event loop."""

    async def middleware(request: Any) -> Any:
        if "X-Actor" not in request.headers:
            return await get_response(request)
        REQUEST.set(request)
        with act_as(request.headers["X-Actor"]):
            return await get_response(request)

    return middleware


def get_actors() -> list[str]:
    """Return the values of both kinds of variables."""
    return [ACTOR.get(), getattr(LOCAL, "actor", "anonymous")]


@tool()
async def actors() -> list[str]:
    """Return the actors."""
    return get_actors()


@tool()
def actors_in_a_thread() -> list[str]:
    """Return the actors, in a plain function."""
    return get_actors()


@tool()
def user_of_the_request() -> str:
    """Return the user of the request that MIDDLEWARE stored."""
    return str(REQUEST.get().user.username)


@tool()
def add_job_in_a_thread(ctx: Context) -> str:
    """Add an async job from a plain function that has set variables."""

    async def note() -> None:
        CHECKPOINTS.note(f"job of {get_actors()}")

    with act_as("ann"):
        ctx.background(note)
    return "later"


@tool()
async def change_actor() -> str:
    """Act as another."""
    ACTOR.set("intruder")
    LOCAL.actor = "intruder"
    return "done"


@tool()
async def actors_at_the_end(ctx: Context) -> list[str]:
    """Return the actors, once the test lets the call go on."""
    await CHECKPOINTS.wait_at("actors")
    return get_actors()
