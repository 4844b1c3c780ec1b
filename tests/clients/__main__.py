"""Real peers against running servers: `python -m tests.clients [URL ...]`.

The official SDKs' clients, of Python and of TypeScript and of either generation, and the Inspector's command line list
the tools and call one, in every era they speak. Of the fixtures the clients also watch a resource, and call the one
handler that asks, loops, samples and books (`plan_journey`). Without a URL the fixtures server is started for them, and
both of its doors are tried. The tool is the first of the well-known ones that the server lists, or `--call TOOL
--arguments JSON`. What the peers need is installed into the cache directory at the first use.
"""

import argparse
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from tests.conformance.__main__ import DOORS, fixtures_server, say
from tests.conformance.npm import cache_directory, installed_package, installed_tool

LEGACY = "mcp==1.30.0"
INSPECTOR = "@modelcontextprotocol/inspector@2.12.0"
TYPESCRIPT = {
    "typescript_v1": "@modelcontextprotocol/sdk@1.32.2",
    "typescript_v2": "@modelcontextprotocol/client@2.4.0",
}
HERE = Path(__file__).parent
LIMIT = 120
"""Seconds for one peer."""

WELL_KNOWN = {"add_numbers": {"a": 2, "b": 3}, "search_airports": {"query": "Oslo"}, "add": {"a": 2, "b": 3}}
"""Tools of the fixtures, the demo and the benchmark, with arguments that succeed."""


def main() -> int:
    options = _options()
    calls = {options.call: json.loads(options.arguments)} if options.call else WELL_KNOWN
    outcomes = []
    with _servers(options.url) as urls:
        for url in urls:
            say(url)
            outcomes += [_tried(name, partial(peer, url, calls)) for name, peer in PEERS.items()]
    say(f"{outcomes.count(True)} passed, {outcomes.count(False)} failed")
    return 0 if all(outcomes) else 1


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.clients", description=__doc__)
    parser.add_argument("url", nargs="*", help="servers that run already; otherwise the fixtures server is started")
    parser.add_argument("--call", help="the tool to call")
    parser.add_argument("--arguments", default="{}", help="its arguments, as JSON")
    return parser.parse_args()


@contextmanager
def _servers(urls: list[str]) -> Iterator[list[str]]:
    if urls:
        yield urls
        return
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with fixtures_server(port):
        yield [f"http://127.0.0.1:{port}{path}" for path in DOORS.values()]


class Failed(Exception):
    """A peer could not do what was asked of it; the text says what it said."""


def _tried(name: str, peer: Callable[[], str]) -> bool:
    """Run a peer; a peer that cannot be installed or does not finish has failed, and the others are still tried."""
    try:
        said = peer()
    except (Failed, SystemExit, OSError, ValueError, subprocess.SubprocessError) as problem:
        say(f"  FAILED  {name}: {problem}")
        return False
    say(f"  passed  {name}: {said}")
    return True


def _legacy(url: str, calls: dict[str, Any]) -> str:
    return _peer([_legacy_python(), str(HERE / "legacy_client.py"), url, json.dumps(calls)])


def _modern(mode: str, url: str, calls: dict[str, Any]) -> str:
    return _peer([sys.executable, str(HERE / "modern_client.py"), url, json.dumps(calls), mode])


def _typescript(script: str, mode: str, url: str, calls: dict[str, Any]) -> str:
    """Run a script beside the package that it imports: that is where Node looks."""
    home, node = installed_package(script, TYPESCRIPT[script])
    for name in (script, "traveller"):
        shutil.copy(HERE / f"{name}.mjs", home)
    return _peer([node, str(home / f"{script}.mjs"), url, json.dumps(calls), mode])


def _inspector(era: str, url: str, calls: dict[str, Any]) -> str:
    """List, with the Inspector's report on the schemas, and call."""
    tool = installed_tool("inspector", INSPECTOR, "mcp-inspector")
    base = [*tool, "--cli", "--server-url", url, "--transport", "http", "--protocol-era", era, "--format", "json"]
    listed = json.loads(_peer([*base, "--method", "tools/list", "--strict"]))
    names = [listed_tool["name"] for listed_tool in _result(listed)["tools"]]
    name = next((name for name in calls if name in names), None)
    if name is None:
        raise Failed(f"none of {', '.join(calls)} is among the tools listed: {', '.join(names)}")
    arguments = ["--tool-name", name, "--tool-args-json", json.dumps(calls[name])]
    called = _result(json.loads(_peer([*base, "--method", "tools/call", *arguments])))
    if called.get("isError") or not called["content"]:
        raise Failed(f"{name} answered {called}")
    return f"{len(names)} tools, {name} called"


PEERS: dict[str, Callable[[str, dict[str, Any]], str]] = {
    "mcp 1.30": _legacy,
    "mcp 2.3, legacy mode": partial(_modern, "legacy"),
    "mcp 2.3, auto mode": partial(_modern, "auto"),
    "TypeScript 1.32": partial(_typescript, "typescript_v1", "legacy"),
    "TypeScript 2.4, legacy mode": partial(_typescript, "typescript_v2", "legacy"),
    "TypeScript 2.4, auto mode": partial(_typescript, "typescript_v2", "auto"),
    "Inspector, legacy era": partial(_inspector, "legacy"),
    "Inspector, modern era": partial(_inspector, "modern"),
}


def _legacy_python() -> str:
    """The interpreter of an environment with the 1.x client in it, made at its first use."""
    home = cache_directory() / "legacy-client"
    python, marker = home / "bin" / "python", home / "installed"
    if not (marker.is_file() and marker.read_text() == LEGACY and python.exists()):
        say(f"Installing {LEGACY} into {home}")
        _output([sys.executable, "-m", "venv", "--clear", str(home)], dict(os.environ))
        install = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", LEGACY]
        _output(install, dict(os.environ), limit=600)
        marker.write_text(LEGACY)
    return str(python)


def _result(printed: dict[str, Any]) -> dict[str, Any]:
    """The method's result, which the Inspector prints bare or below "result"."""
    result: dict[str, Any] = printed.get("result", printed)
    return result


def _peer(command: list[str]) -> str:
    """What a peer printed, in a home of its own: it does not find the settings of whoever runs this."""
    with tempfile.TemporaryDirectory() as home:
        return _output(command, {**os.environ, "HOME": home})


def _output(command: list[str], environment: dict[str, str], *, limit: float = LIMIT) -> str:
    """What a command printed. Raises Failed with what it said when it ended badly."""
    run = subprocess.run(
        command, capture_output=True, text=True, timeout=limit, cwd=HERE.parents[1], env=environment, check=False
    )
    if run.returncode:
        raise Failed(f"{Path(command[1]).name} ended with {run.returncode}\n{run.stdout}{run.stderr}".strip())
    return run.stdout.strip()


if __name__ == "__main__":
    sys.exit(main())
