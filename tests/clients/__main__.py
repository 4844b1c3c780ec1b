"""Run peers against servers: `python -m tests.clients [URL ...] [--config FILE]`.

The peers are the clients of the official SDKs for Python and TypeScript, each in both generations, the command line of
the Inspector, and our own client. Each peer lists the tools of a server and calls one of them, in every era that it
speaks and over every transport that it knows: Streamable HTTP, HTTP+SSE, WebSocket and stdio.

Without a URL, the peers are tried on these servers:

- The fixtures, at the ASGI endpoint, at the Django view and over stdio. The clients also watch a resource, and call the
  handler that asks, loops, samples and books (`plan_journey`).
- The demo.
- The protected site. Each client registers, gets the consent of its user, steps up, and refreshes its token.
- The composed project, which serves a remote on TypeScript's SDK and the document of a real API from one endpoint. It
  keeps working while the remote is away, and never mixes the credentials of two users.
- A site with 300 random rows of odd values, which tools of a model, of a view, of an API and of functions return. The
  TypeScript SDKs compile each schema, and each client validates each structured result.

Clients with tasks (FastMCP's, `ext-tasks` of npm, and the 1.x SDKs) let tasks of the fixtures complete, fail and be
cancelled, and answer their questions. Our own client is also tried on a server on the official SDK, in both eras, and
on the TypeScript reference server.

`--config` names a file in the form of Claude's configuration (`manage.py mcp_install claude` prints one). Its servers
are started over stdio with exactly the command in the file. The tool is the first of the well-known ones that the
server lists, or `--call TOOL --arguments JSON`. Without a URL and `--config`, the demo's apps are also tried in the
Inspector's web client. The packages of the peers are installed into the cache directory at the first use.
"""

import argparse
import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from functools import partial
from pathlib import Path

import mcp.client.session

from tests.browser.hosting.inspector import INSPECTOR_VARIABLE
from tests.clients.composed import composed_project
from tests.clients.odd_rows.place import odd_rows
from tests.clients.peer_process import Failed
from tests.clients.peers import Calls, Peer, Target, stop_processes
from tests.clients.places import Opened, Place, everything, served_at
from tests.clients.protected import protected
from tests.clients.tasks.peers import fixtures_with_tasks
from tests.conformance.__main__ import print_line
from tests.support.waiting import WAIT_SECONDS

SPOKEN = {True: "2026-07-28", False: "2025-11-25"}
"""The agreed revision, in the stateless era (True) and in the handshake era (False)."""
WAYS = {"http": "Streamable HTTP", "sse": "HTTP+SSE", "websocket": "WebSocket", "stdio": "stdio"}
AT_ONCE = 2
"""Servers that are tried at once. Each has one peer at a time, because it numbers the bookings."""
PROBLEMS = (Failed, SystemExit, OSError, ValueError, KeyError, subprocess.SubprocessError)
SUM = {"a": 2, "b": 3}
WELL_KNOWN = {"add_numbers": SUM, "search_airports": {"query": "Oslo"}, "add": SUM, "get-sum": SUM}
"""Tools of these servers and of the benchmark's, with arguments that succeed."""


def main() -> int:
    # A server that starts slowly on a busy machine must not be taken for one of the handshake era.
    mcp.client.session.DISCOVER_TIMEOUT_SECONDS = WAIT_SECONDS
    options = _options()
    calls = {options.call: json.loads(options.arguments)} if options.call else WELL_KNOWN
    chosen = _chosen(options)
    places = chosen or [fixtures_with_tasks, *everything(), protected, composed_project, odd_rows]
    with ThreadPoolExecutor(AT_ONCE) as pool:
        outcomes = [passed for tried in pool.map(partial(_visited, calls), places) for passed in tried]
    stop_processes()
    if not chosen:
        outcomes.append(_show_apps_in_the_inspector())
    print_line(f"{outcomes.count(True)} passed, {outcomes.count(False)} failed")
    return 0 if all(outcomes) else 1


def _show_apps_in_the_inspector() -> bool:
    """Try the demo's apps in the Inspector's web client, in a browser."""
    command = [sys.executable, "-m", "pytest", "-q", "-n", "0", "-m", "", "-k", "inspector", "tests/browser/hosting"]
    run = subprocess.run(
        command, env={**os.environ, INSPECTOR_VARIABLE: "1"}, capture_output=True, text=True, timeout=600, check=False
    )
    print_line(f"{'ok' if run.returncode == 0 else 'FAILED':<8} apps in the Inspector's web client")
    if run.returncode:
        print_line(run.stdout[-4000:] + run.stderr[-1000:])
    return run.returncode == 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.clients", description=__doc__)
    parser.add_argument("url", nargs="*", help="servers that run already; otherwise the project's own are started")
    parser.add_argument("--config", type=Path, help="a file with servers to start over stdio")
    parser.add_argument("--call", help="the tool to call")
    parser.add_argument("--arguments", default="{}", help="its arguments, as JSON")
    return parser.parse_args()


def _chosen(options: argparse.Namespace) -> list[Opened]:
    """Return the places that the command line names."""
    places = [served_at(url, url.rstrip("/")) for url in options.url]
    if options.config:
        servers = json.loads(options.config.read_text())["mcpServers"]
        places += [Place(name, {"stdio": server}) for name, server in servers.items()]
    return [partial(nullcontext, place) for place in places]


def _visited(calls: Calls, opened: Opened) -> list[bool]:
    """Try the peers on a server, each over all of its transports.

    A server that does not start counts as one failure.
    """
    try:
        with opened() as first:
            return [
                _tried(place.name, peer, way, place.ways[way], calls)
                for place in (first, *first.others)
                for peer in place.peers
                for way in peer.ways
                if way in place.ways
            ]
    except PROBLEMS as problem:
        print_line(f"  FAILED  {problem}")
        return [False]


def _tried(where: str, peer: Peer, way: str, target: Target, calls: Calls) -> bool:
    """Run a peer, and return True if it passed.

    A peer that cannot be installed or does not finish has failed, and the others are still tried.
    """
    what = f"{where}, {peer.name}, {WAYS[way]}"
    try:
        said = peer.run(way, target, calls)
        if said[-10:] in SPOKEN.values() and not said.endswith(SPOKEN[way in peer.modern]):
            raise Failed(f"it agreed on another revision: {said}")
    except PROBLEMS as problem:
        print_line(f"  FAILED  {what}: {problem}")
        return False
    print_line(f"  passed  {what}: {said}")
    return True


if __name__ == "__main__":
    sys.exit(main())
