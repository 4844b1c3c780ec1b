"""The protected site, and the peers that log in, step up and refresh on it.

A `Browser` takes the part of the user.
"""

import asyncio
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

from tests.clients.oauth.browser import Browser
from tests.clients.oauth.connection import cause, connected
from tests.clients.peer_process import LIMIT, Failed
from tests.clients.peers import Calls, Peer, Target, typescript_script
from tests.clients.places import Place
from tests.conformance.authorization import protected_site


def _python(mode: str, way: str, target: Target, calls: Calls) -> str:
    try:
        return asyncio.run(_authorized(str(target), mode))
    except (AssertionError, BaseExceptionGroup) as problem:
        raise Failed(repr(cause(problem))) from problem


async def _authorized(url: str, mode: str) -> str:
    async with connected(url, mode=mode) as connection:
        names = await connection.names()
        said = [await connection.call(tool) for tool in ("look", "change")]
        connection.expire()
        said.append(await connection.call("change"))
        if said != ["alice looks", "alice changes", "alice changes"]:
            raise Failed(f"the tools answered {said}")
        asked, spoken = len(connection.browser.pages), connection.client.protocol_version
    return f"{len(names)} tools, asked {asked} times, {spoken}"


def _typescript(script: str, mode: str, way: str, target: Target, calls: Calls) -> str:
    """Run a TypeScript client, and open each URL that it prints in a browser."""
    node, path = typescript_script(script, "oauth/typescript")
    command = [node, path, script[-1], str(target), mode]
    browser = Browser()
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        try:
            for line in process.stdout:
                word, _, rest = line.strip().partition(" ")
                if word == "done":
                    return rest
                asyncio.run(_opened(browser, rest))
                process.stdin.write(f"{browser.address}\n")
                process.stdin.flush()
            raise Failed(process.stderr.read() or f"it ended with {process.wait(LIMIT)}")
        finally:
            process.kill()


async def _opened(browser: Browser, url: str) -> None:
    """Open a URL. Raises Failed if the site does not redirect back to the client."""
    try:
        await browser.open(url)
    except AssertionError as problem:
        raise Failed(str(problem)) from problem


PEERS = (
    Peer("mcp 2.3, legacy mode", ("http",), partial(_python, "legacy")),
    Peer("mcp 2.3, auto mode", ("http",), partial(_python, "auto"), ("http",)),
    Peer("TypeScript 1.32", ("http",), partial(_typescript, "typescript_v1", "legacy")),
    Peer("TypeScript 2.4, legacy mode", ("http",), partial(_typescript, "typescript_v2", "legacy")),
    Peer("TypeScript 2.4, auto mode", ("http",), partial(_typescript, "typescript_v2", "auto"), ("http",)),
)


@contextmanager
def protected() -> Iterator[Place]:
    """Run the protected site, whose user is `alice`."""
    with protected_site() as site:
        yield Place("protected", {"http": site.resource}, PEERS)
