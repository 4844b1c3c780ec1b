"""Tools that send numbered messages in every way, so that the received ones can be counted."""

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
    """Return the id of this process."""
    return os.getpid()


@tool()
async def send_private(source: str, number: int, ctx: Context) -> int:
    """Send a message to the session that asks, outside any call's stream."""
    data = {"source": source, "number": number, "at": time.monotonic()}
    params = {"level": "info", "data": data}
    message = {"jsonrpc": "2.0", "method": "notifications/message", "params": params}
    await wiring.get_services().event_publisher.publish(EventDraft(f"session:{ctx.session.pk}", "message", message))
    return number


@tool()
async def change(source: str, number: int) -> int:
    """Publish a change of a resource."""
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
    """Count with log messages and progress in turn. Return the id of the process."""
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
    """Send a message at once, and then wait."""
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
    """Create users with a consent for a client each. Return the access tokens."""
    return let_in(names, resource)


@tool()
def withdraw(how: str, name: str) -> int:
    """Withdraw a right from a user, as an admin page does. Return the id of the process."""
    WITHDRAWALS[how](name)
    return os.getpid()


@tool(permission="auth.view_user")
async def secret() -> int:
    """Return a text for permitted users."""
    return 7


for _name in ("tool_disabled", "tool_kept_for_a_group"):
    tool(secret, name=_name)


@resource("secret://{number}", permission="auth.view_user")
async def secret_number(number: int) -> str:
    """The same, to be listened to."""
    return "known"


@tool()
async def change_secret(number: int) -> int:
    """Publish a change of the secret, and then one of an item."""
    await anotify_resource_updated(f"secret://{number}")
    await anotify_resource_updated(f"item://beat/{number}")
    return number


@tool()
async def length(text: str) -> int:
    """Return the length of a text."""
    return len(text)


if os.environ.get("SITE_RELEASE") == "next":

    @tool()
    async def from_the_next_release() -> None:
        """Do nothing."""
