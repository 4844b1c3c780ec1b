"""Tools that write each effect in a journal, and atomic ones that also book a row.

Each tool has a form that may run again after its worker was lost, and one that must not. A tool returns its number and
the letters of its run, so that a result shows the run that it comes from.
"""

import asyncio
import os
import time

from mcp_django import Context, tool
from mcp_django.types import TaskOptions
from tests.load.task_site.journal import FIRST_VERSION, Event, RunJournal
from tests.load.task_site.models import Booking

EFFECT_SECONDS = 0.15
"""Seconds between two effects."""
ONCE = TaskOptions(grace=0)
AGAIN = TaskOptions(grace=0, retry=100)


async def _work(run: RunJournal, seconds: float) -> str:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        await asyncio.sleep(EFFECT_SECONDS)
        run.note(Event.EFFECT)
    run.note(Event.END)
    return f"{run.number} {run.run}"


def _begin(number: int) -> RunJournal:
    run = RunJournal(number)
    run.note(Event.START)
    return run


async def _count(number: int, seconds: float = 0.0) -> str:
    return await _work(_begin(number), seconds)


def _count_blocking(number: int, seconds: float) -> str:
    run, end = _begin(number), time.monotonic() + seconds
    while time.monotonic() < end:
        time.sleep(EFFECT_SECONDS)
        run.note(Event.EFFECT)
    run.note(Event.END)
    return f"{number} {run.run}"


async def _ask(number: int, seconds: float, ctx: Context) -> str:
    run = _begin(number)

    async def step() -> str:
        run.note(Event.STEP)
        await asyncio.sleep(EFFECT_SECONDS)
        return run.run

    await ctx.run_once("step", step)
    run.note(Event.ASK)
    await ctx.elicit("Go on?", bool, key="go on")
    run.note(Event.ANSWER)
    return await _work(run, seconds)


async def _book(number: int, seconds: float) -> str:
    run = _begin(number)
    await Booking.objects.acreate(number=number, run=run.run)
    return await _work(run, seconds)


def _book_blocking(number: int, seconds: float) -> str:
    run = _begin(number)
    Booking.objects.create(number=number, run=run.run)
    time.sleep(seconds)
    run.note(Event.END)
    return f"{number} {run.run}"


async def _block(number: int, seconds: float) -> str:
    """Block the event loop, which is a common mistake."""
    run = _begin(number)
    time.sleep(seconds)
    run.note(Event.END)
    return f"{number} {run.run}"


for function, name, is_atomic in (
    (_count, "count", False),
    (_count_blocking, "count_blocking", False),
    (_ask, "ask", False),
    (_book, "book", True),
    (_book_blocking, "book_blocking", True),
):
    tool(name, task=ONCE, atomic=is_atomic)(function)
    tool(f"{name}_again", task=AGAIN, atomic=is_atomic)(function)
tool("block", task=ONCE)(_block)
if os.environ.get("SITE_VERSION") != FIRST_VERSION:
    tool("added", task=ONCE)(_count)
    tool("added_again", task=AGAIN)(_count)
