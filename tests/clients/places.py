"""Servers that the peers are tried on, and the ways into each.

They are servers of this project, and servers of others for our own client.
"""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from tests.clients import peers
from tests.clients.peer_process import Failed
from tests.clients.peers import DIRECTORY, OURS, PEERS, ROOT, SKILL_PEERS, Peer, Target, output
from tests.conformance.__main__ import DOORS, fixtures_server, listens
from tests.conformance.server import fixtures_database
from tests.support.ports import take_port

SECONDS = 60
"""Seconds that a server may take to start. The demo also loads its airports in that time."""


class Place(NamedTuple):
    """A server, and the ways into it."""

    name: str
    ways: dict[str, Target]
    """The target of each way."""
    peers: tuple[Peer, ...] = PEERS
    """The peers that are tried on it."""
    others: tuple["Place", ...] = ()
    """Other places on the same server, which are tried after it."""


Opened = Callable[[], AbstractContextManager[Place]]


def served_at(name: str, url: str) -> Place:
    """Return the place of the HTTP endpoint at a URL.

    Its `websocket` works only if the ASGI application serves the endpoint.
    """
    address = urlsplit(url)
    socket = address._replace(scheme={"http": "ws", "https": "wss"}[address.scheme], path=f"{address.path}/ws")
    return Place(name, {"http": url, "sse": f"{url}/sse", "websocket": socket.geturl()})


@contextmanager
def fixtures() -> Iterator[Place]:
    """Run the fixtures: the ASGI endpoint, and in `others` the Django view."""
    port = take_port()
    with fixtures_server(port):
        door, view = (served_at(f"fixtures{path}", f"http://127.0.0.1:{port}{path}") for path in DOORS.values())
        del view.ways["websocket"]  # Django's own routes end with HTTP
        yield door._replace(peers=(*PEERS, *SKILL_PEERS), others=(view,))


@contextmanager
def installed_fixtures() -> Iterator[Place]:
    """Yield the fixtures with the command that `mcp_install claude` prints."""
    with fixtures_database() as environment:
        (server,) = installed([sys.executable, "-m", "django"], environment).values()
        yield Place("fixtures", {"stdio": {**server, "env": {**environment, **server.get("env", {})}}})


@contextmanager
def fixtures_over_stdio() -> Iterator[Place]:
    """Yield the fixtures with the command of `make serve-fixtures STDIO=1`."""
    command: Target = {"command": sys.executable, "args": ["-m", "tests.conformance.server", "--stdio"]}
    yield Place("fixtures, run by make", {"stdio": command}, (OURS[0], PEERS[len(OURS)]))


@contextmanager
def demo() -> Iterator[Place]:
    """Run the demo of this checkout.

    `mcp_install claude` prints its command for stdio.
    """
    port = take_port()
    command = [sys.executable, "manage.py", "demo", "--port", str(port)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            # The demo prints how to stop it in its last line.
            if not any("Ctrl-C" in line for line in process.stdout):
                raise Failed(f"the demo ended with {process.wait(SECONDS)}")
            place = served_at("demo", f"http://127.0.0.1:{port}/mcp")
            (place.ways["stdio"],) = installed([sys.executable, "manage.py"]).values()
            # All peers run on the fixtures in each mode; the demo gets only those that choose the newest revision.
            yield place._replace(peers=tuple(peer for peer in PEERS if peer.modern))
        finally:
            process.terminate()
            process.communicate()


@contextmanager
def sdk_server() -> Iterator[Place]:
    """Run a server on the official SDK, in both eras and with all of its transports."""
    script = str(DIRECTORY / "sdk_server.py")
    with _listening([sys.executable, script], port := take_port()):
        origin = f"http://127.0.0.1:{port}"
        stdio: Target = {"command": sys.executable, "args": [script, "stdio"]}
        ways: dict[str, Target] = {"http": f"{origin}/mcp", "sse": f"{origin}/sse", "stdio": stdio}
        # The SDK speaks the stateless era over HTTP+SSE, too.
        yield Place("SDK 2.3", ways, tuple(peer._replace(modern=peer.modern and tuple(ways)) for peer in OURS))


@contextmanager
def everything_server() -> Iterator[Place]:
    """Run the TypeScript reference server, which knows only the handshake era."""
    command, http, sse = peers.everything_server(), take_port(), take_port()
    # The server reads its port from the environment.
    with _listening([*command, "streamableHttp"], http), _listening([*command, "sse"], sse):
        ways: dict[str, Target] = {"http": f"http://127.0.0.1:{http}/mcp", "sse": f"http://127.0.0.1:{sse}/sse"}
        ways["stdio"] = {"command": command[0], "args": [*command[1:], "stdio"]}
        yield Place("server-everything", ways, tuple(peer._replace(modern=()) for peer in OURS))


@contextmanager
def _listening(command: list[str], port: int) -> Iterator[None]:
    """Run a server in a process. It gets its port as last argument and as PORT."""
    environment = {**os.environ, "PORT": str(port)}
    with subprocess.Popen(
        [*command, str(port)], env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as process:
        try:
            give_up = time.monotonic() + SECONDS
            while not listens(port):
                if process.poll() is not None or time.monotonic() > give_up:
                    raise Failed(f"{command[-1]} does not come up")
                time.sleep(0.05)
            yield
        finally:
            process.kill()


def installed(manage: list[str], environment: dict[str, str] | None = None) -> dict[str, dict[str, Any]]:
    """Return the servers in the JSON that `mcp_install claude` prints, by name."""
    printed = output([*manage, "mcp_install", "claude"], {**os.environ, **(environment or {})})
    servers: dict[str, dict[str, Any]] = json.loads(printed)["mcpServers"]
    return servers


def everything() -> list[Opened]:
    """Return the places that are tried when the command line names no server.

    The fixtures over HTTP are not among them.
    """
    return [demo, installed_fixtures, fixtures_over_stdio, sdk_server, everything_server]
