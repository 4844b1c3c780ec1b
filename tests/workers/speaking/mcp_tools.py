"""Tools that say numbered things in every way there is, so that what arrives can be counted."""

import asyncio
import os
import threading
import time

from mcp_django import Context, resource, tool, wiring
from mcp_django.notifications import abroadcast, anotify_resource_updated, notify_resource_updated
from mcp_django.runtime.events import Draft
from tests.servers.site.events import noted

CRY = "notifications/tests/cry"


@resource("item://{group}/{number}")
async def item(group: str, number: int) -> str:
    """What clients watch: each number of a group is a resource of its own, and changes once."""
    return f"{group} {number}"


@tool()
async def pid() -> int:
    """Say which process this is."""
    return os.getpid()


@tool()
async def tell(source: str, number: int, ctx: Context) -> int:
    """Send a message to the session that asks, outside any call's stream."""
    data = {"source": source, "number": number, "at": time.monotonic()}
    params = {"level": "info", "data": data}
    message = {"jsonrpc": "2.0", "method": "notifications/message", "params": params}
    await wiring.feeds().publish(Draft(f"session:{ctx.session.pk}", "message", message))
    return number


@tool()
async def change(source: str, number: int) -> int:
    """Say that a resource has changed."""
    await anotify_resource_updated(f"item://{source}/{number}")
    return number


@tool()
async def change_in_thread(source: str, number: int) -> int:
    """The same from a thread that no framework knows, as those of task queues are."""
    thread = threading.Thread(target=lambda: notify_resource_updated(f"item://{source}/{number}"))
    thread.start()
    await asyncio.to_thread(thread.join)
    return number


@tool()
async def cry(source: str, number: int) -> int:
    """Say something to everybody."""
    await abroadcast(CRY, {"source": source, "number": number})
    return number


@tool()
async def count(tag: str, ctx: Context, times: int = 20, pause: float = 0.05) -> int:
    """Count aloud, by log messages and progress in turn, and say which process did it."""
    with noted(tag):
        for number in range(1, times + 1):
            if number % 2:
                await ctx.info({"number": number, "pid": os.getpid()})
            else:
                await ctx.report_progress(number, times)
            await asyncio.sleep(pause)
    return os.getpid()


@tool()
async def linger(tag: str, ctx: Context) -> str:
    """Say something at once, and then wait."""
    with noted(tag):
        await ctx.report_progress(1)
        await asyncio.sleep(60)
    return tag


@tool()
async def number(ctx: Context, tag: str = "number") -> int:
    """Ask for a number, and give it back."""
    answer = await ctx.elicit("Which number?", int)
    assert answer.data is not None
    return answer.data


@tool()
async def length(text: str) -> int:
    """Say how long a text is."""
    return len(text)
