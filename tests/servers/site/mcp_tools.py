"""Tools that wait, talk, ask and query, and note how they fare. `tag` names the call in the events."""

import asyncio
import os
import time
from pathlib import Path
from typing import Any

from asgiref.sync import sync_to_async
from django.db import connection
from django.urls import reverse
from django.utils.translation import gettext

from mcp_django import Context, anotify_list_changed, tool
from tests.servers.site.events import note, noted

COUNTING = "WITH RECURSIVE n(i) AS (SELECT running() UNION ALL SELECT i + 1 FROM n WHERE i < %s) SELECT count(*) FROM n"
SQLITE_STEPS = 4_000_000
"""Rows that this counts in about a second."""


@tool()
async def fast(number: int = 0) -> int:
    """Give the number back."""
    return number


@tool()
def around(ctx: Context) -> dict[str, str]:
    """Return the path and the language, from a thread."""
    request = ctx.request
    return {"path": request.path, "found": reverse("mcp_django:default"), "monday": gettext("Monday")}


@tool()
async def wait(tag: str, seconds: float = 60.0) -> str:
    """Wait on the event loop, in silence."""
    with noted(tag):
        await asyncio.sleep(seconds)
    return tag


@tool()
async def hold(tag: str, ctx: Context, streams: bool = False) -> str:
    """Wait until the test releases it, in silence or after a first message."""
    with noted(tag):
        if streams:
            await ctx.report_progress(1)
        while not Path(os.environ["SITE_RELEASED"]).exists():
            await asyncio.sleep(0.02)
    return tag


@tool()
async def change(kind: str) -> str:
    """Send a notification that a list changed."""
    await anotify_list_changed(kind)
    return kind


@tool()
async def stream(tag: str, ctx: Context, seconds: float = 60.0) -> str:
    """Report progress at once, and then wait."""
    with noted(tag):
        await ctx.report_progress(1)
        await asyncio.sleep(seconds)
    return tag


@tool()
async def survey(tag: str, ctx: Context, seconds: float = 60.0) -> str:
    """Report that half is done, and then wait."""
    with noted(tag):
        await ctx.report_progress(1, 2)
        await asyncio.sleep(seconds)
    return tag


@tool()
async def tick(tag: str, ctx: Context, times: int = 100, pause: float = 0.01) -> str:
    """Report progress again and again."""
    with noted(tag):
        for number in range(times):
            await ctx.report_progress(number)
            await asyncio.sleep(pause)
    return tag


@tool()
async def flood(tag: str, ctx: Context, times: int, size: int) -> str:
    """Report progress with a large message, again and again and without a pause."""
    text = "x" * size
    with noted(tag):
        for number in range(times):
            await ctx.report_progress(number + 1, message=text)
    return tag


@tool()
def flood_from_thread(tag: str, ctx: Context, times: int, size: int) -> str:
    """The same, from a thread."""
    text = "x" * size
    with noted(tag):
        for number in range(times):
            ctx.sync.report_progress(number + 1, message=text)
    return tag


@tool()
async def ignore_cancel(tag: str, ctx: Context) -> str:
    """Send messages and return a result despite a cancellation."""
    try:
        with noted(tag):
            await asyncio.sleep(60)
    except asyncio.CancelledError:
        await ctx.report_progress(1)
    return tag


@tool()
async def ask(tag: str, ctx: Context) -> str:
    """Ask whether to go on."""
    with noted(tag):
        answer = await ctx.elicit("Go on?")
    return answer.action


@tool()
def poll(tag: str, ctx: Context, seconds: float = 60.0) -> str:
    """Work in a thread, looking up from time to time."""
    end = time.monotonic() + seconds
    with noted(tag):
        while time.monotonic() < end:
            if ctx.cancelled:
                note("noticed", tag)
                return "stopped"
            time.sleep(0.005)
    return tag


@tool()
def echo_sql(number: int) -> int:
    """Have the database give the number back: a call that no other call's end may disturb."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT %s + 0", [number])
        return int(cursor.fetchone()[0])


@tool()
def sql(tag: str, seconds: float = 60.0) -> str:
    """Wait for the database in a plain function."""
    with noted(tag):
        query(tag, seconds)
    return tag


@tool()
async def async_sql(tag: str, seconds: float = 60.0) -> str:
    """Wait for the database in a coroutine."""
    with noted(tag):
        await sync_to_async(query)(tag, seconds)
    return tag


@tool()
async def talking_sql(tag: str, ctx: Context, seconds: float = 60.0) -> str:
    """Report progress at once, and then wait for the database in a coroutine."""
    with noted(tag):
        await ctx.report_progress(1)
        await sync_to_async(query)(tag, seconds)
    return tag


def query(tag: str, seconds: float) -> None:
    """One statement that takes the database about this long. Notes "sql-started", and "sql-ended" with the problem."""
    note("sql-started", tag)
    problem = None
    try:
        with connection.cursor() as cursor:
            if connection.vendor == "sqlite":
                _count(cursor, tag, seconds)
            else:
                cursor.execute("SELECT pg_sleep(%s)", [seconds])
            cursor.fetchone()
    except BaseException as caught:
        problem = type(caught).__name__
        raise
    finally:
        note("sql-ended", tag, problem=problem)


def _count(cursor: Any, tag: str, seconds: float) -> None:
    """Let the statement itself record that it is running: it is not visible from outside."""

    def running() -> int:
        note("sql-running", tag)
        return 1

    connection.connection.create_function("running", 0, running)
    cursor.execute(COUNTING, [int(seconds * SQLITE_STEPS)])
