"""Tools that say numbered things in every way there is, so that what arrives can be counted."""

import asyncio
import os
import threading
import time

from mcp_django import Context, resource, tool, wiring
from mcp_django.notifications import abroadcast, anotify_resource_updated, notify_resource_updated
from mcp_django.runtime.events.event_log import EventDraft
from tests.servers.site.events import noted
from tests.workers.site.users import WITHDRAWALS, let_in, make

BROADCAST = "notifications/tests/broadcast"


@resource("item://{group}/{number}")
async def item(group: str, number: int) -> str:
    """Serve a resource that clients watch: each number of a group changes once."""
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
    await wiring.get_services().event_publisher.publish(EventDraft(f"session:{ctx.session.pk}", "message", message))
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
async def broadcast(source: str, number: int) -> int:
    """Send a message to all sessions."""
    await abroadcast(BROADCAST, {"source": source, "number": number})
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
        await asyncio.sleep(600)
    return tag


@tool()
async def number(ctx: Context, tag: str = "number") -> int:
    """Ask for a number, and give it back."""
    answer = await ctx.elicit("Which number?", int)
    assert answer.data is not None
    return answer.data


@tool()
def people(names: list[str], seconds: float | None = None) -> dict[str, str]:
    """Make users with tokens of their own, which may expire in so many seconds; the tokens."""
    return make(names, seconds=seconds)


@tool()
def people_with_clients(names: list[str], resource: str) -> dict[str, str]:
    """Make users who have let a client of their own in; its access tokens."""
    return let_in(names, resource)


@tool()
def withdraw(how: str, name: str) -> int:
    """Take something away from a user, as an admin page of this worker would, and say which process that was."""
    WITHDRAWALS[how](name)
    return os.getpid()


@tool(permission="auth.view_user")
async def secret() -> int:
    """Return what only some users may read."""
    return 7


for _name in ("tool_disabled", "tool_kept_for_a_group"):
    tool(secret, name=_name)


@resource("secret://{number}", permission="auth.view_user")
async def secret_number(number: int) -> str:
    """The same, to be listened to."""
    return "known"


@tool()
async def change_secret(number: int) -> int:
    """Say that it has changed, and then that an item has."""
    await anotify_resource_updated(f"secret://{number}")
    await anotify_resource_updated(f"item://beat/{number}")
    return number


@tool()
async def length(text: str) -> int:
    """Say how long a text is."""
    return len(text)


if os.environ.get("SITE_RELEASE") == "next":

    @tool()
    async def from_the_next_release() -> None:
        """Do nothing."""
