"""Behaviour of the composed project, with a remote in any language."""

import asyncio
import json
import signal
from collections.abc import Callable, Coroutine
from contextlib import AsyncExitStack
from typing import Any

import httpx

from mcp_django.client import Client, StreamableHTTP
from tests.composed.harness import Site
from tests.support.waiting import WAIT_SECONDS

Step = Callable[[Site], Coroutine[Any, Any, None]]
AT_ONCE = 8
"""Calls of each user at the same time."""


def client_of(site: Site, user: str) -> Client:
    """A client of the endpoint, as a user."""
    return Client(StreamableHTTP(site.url, headers=site.headers(user)), timeout=WAIT_SECONDS)


def text(result: Any) -> str:
    """Return the text of a result."""
    return str(result.content[0].text)


async def everything_is_listed_together(site: Site) -> None:
    """Assert that one endpoint lists the tools of all sources, with their prefixes."""
    async with client_of(site, "ada") as client:
        tools = {tool.name for tool in await client.list_tools()}
        assert {"whoami", "weather__forecast", "weather__calls", "remote__echo", "figma_me"} <= tools, tools
        prompts = {prompt.name for prompt in await client.list_prompts()}
        assert "weather__report" in prompts
        assert any(name.startswith("remote__") for name in prompts), prompts
        assert await client.list_resources()
        templates = {template.uri_template for template in await client.list_resource_templates()}
        assert {"city://{name}", "comments://{file_key}"} <= templates, templates


async def calls_reach_each_source(site: Site) -> None:
    """Assert that listed tools and resources can be used."""
    async with client_of(site, "ada") as client:
        assert text(await client.call_tool("whoami", {})) == "ada"
        before = int(text(await client.call_tool("weather__calls", {})))
        assert text(await client.call_tool("weather__forecast", {"city": "Bern"})) == "Bern: rain, ada"
        assert int(text(await client.call_tool("weather__calls", {}))) == before + 2  # its middleware counts
        assert text(await client.call_tool("remote__echo", {"message": "hello"})) == "Echo: hello"
        assert json.loads(text(await client.call_tool("figma_me", {})))["handle"] == "key-of-ada"
        read = await client.read_resource("city://bern")
        assert read.contents[0].text == "bern for ada"
        read = await client.read_resource("comments://abc")
        assert json.loads(read.contents[0].text)["key"] == "key-of-ada"
        found = await client.get_prompt("weather__report", {"city": "Bern"})
        assert found.messages[0].content.text == "Report on Bern"


async def credentials_never_mix(site: Site) -> None:
    """Assert that each source gets the credential of each of two simultaneous users."""
    async with AsyncExitStack() as stack:
        clients = {user: await stack.enter_async_context(client_of(site, user)) for user in ("ada", "bob")}

        async def one(user: str, number: int) -> None:
            client = clients[user]
            message = f"said by {user}, {number}"
            assert text(await client.call_tool("remote__echo", {"message": message})) == f"Echo: {message}"
            assert json.loads(text(await client.call_tool("figma_me", {})))["handle"] == f"key-of-{user}"
            assert text(await client.call_tool("whoami", {})) == user
            assert text(await client.call_tool("weather__forecast", {"city": "Bern"})) == f"Bern: rain, {user}"

        await asyncio.gather(*(one(user, number) for number in range(AT_ONCE) for user in clients))
    async with httpx.AsyncClient() as http:
        seen = (await http.get(f"{site.api}/seen")).json()
    for user in ("ada", "bob"):
        mine = [credential for credential, body in seen if f"said by {user}," in body]
        assert len(mine) >= AT_ONCE
        assert set(mine) == {f"Bearer remote-{user}"}
    tokens = set(site.tokens.values())
    assert not any(token in credential or token in body for credential, body in seen for token in tokens)


async def the_remote_may_be_killed_and_come_back(site: Site) -> None:
    """Assert that errors name the remote while it is away, and that its calls work later."""
    async with client_of(site, "ada") as client:
        assert text(await client.call_tool("remote__echo", {"message": "before"})) == "Echo: before"
        site.remote.end(signal.SIGKILL)
        try:
            async with asyncio.timeout(WAIT_SECONDS):
                gone = await client.call_tool("remote__echo", {"message": "gone"})
            assert gone.is_error
            assert text(await client.call_tool("weather__forecast", {"city": "Bern"})) == "Bern: rain, ada"
            assert json.loads(text(await client.call_tool("figma_me", {})))["handle"] == "key-of-ada"
            tools = {tool.name for tool in await client.list_tools()}
            assert {"whoami", "weather__forecast", "figma_me"} <= tools
        finally:
            site.remote.start()
        async with asyncio.timeout(WAIT_SECONDS):
            while True:
                back = await client.call_tool("remote__echo", {"message": "back"})
                if not back.is_error:
                    break
        assert text(back) == "Echo: back"
        assert "remote__echo" in {tool.name for tool in await client.list_tools()}


JOURNEY: tuple[Step, ...] = (
    everything_is_listed_together,
    calls_reach_each_source,
    credentials_never_mix,
    the_remote_may_be_killed_and_come_back,
)
