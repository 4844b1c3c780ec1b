"""Peers, the functions that run them, and the packages that they need.

The clients of this environment run in this process, because their imports take longer than a check. A client that is
tried in many ways has one process for all of its checks (`PROCESSES`). Each check of another client has a process of
its own.

A peer gets a way into a server and the target of that way: a URL, or for stdio the command as in a client's
configuration.
"""

import asyncio
import functools
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import traceback
from collections.abc import Callable, Coroutine
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from uv import find_uv_bin

from mcp_django.client import Client, StreamableHTTP
from tests.clients import modern_client, our_client
from tests.clients.peer_process import LIMIT, Failed, PeerProcess
from tests.conformance.__main__ import print_line
from tests.conformance.npm import cache_directory, installed_package, installed_tool, lock_cache

LEGACY = "mcp[ws]==1.30.0"
FASTMCP = ("fastmcp-slim[client]==4.2.1", "PyYAML==6.0.3")
EVERYTHING = "@modelcontextprotocol/server-everything@2026.8.31"
INSPECTOR = "@modelcontextprotocol/inspector@2.12.0"
TYPESCRIPT = {
    "typescript_v1": "@modelcontextprotocol/sdk@1.32.2",
    "typescript_v2": "@modelcontextprotocol/client@2.4.0 @modelcontextprotocol/ext-tasks@0.2.2",
}
"""Directories of the cache, each with its packages."""
QUOTED_SKILLS = ("skill://conformance/quoted/SKILL.md", "skill://conformance/single/SKILL.md")
DIRECTORY = Path(__file__).parent
ROOT = DIRECTORY.parents[1]
PROCESSES = {name: PeerProcess() for name in ("legacy_client", *TYPESCRIPT, "inspector_cli")}
installing = threading.Lock()

Calls = dict[str, Any]
"""Tools, each with its arguments."""
Plan = list[tuple[str, dict[str, Any]]]
"""Calls that are all made."""
Target = str | dict[str, Any]


class Peer(NamedTuple):
    """A client in one of its modes."""

    name: str
    ways: tuple[str, ...]
    """The transports that it knows: `http`, `sse`, `websocket`, `stdio`."""
    run: Callable[[str, Target, Calls], str]
    """Function that runs the peer and returns its summary. Raises Failed."""
    modern: tuple[str, ...] = ()
    """The transports over which it has to agree on the stateless era."""


def _legacy(way: str, target: Target, calls: Calls) -> str:
    command = [legacy_python(), str(DIRECTORY / "legacy_client.py")]
    return PROCESSES["legacy_client"].check(command, way, encode_target(target), json.dumps(calls))


def _modern(mode: str, way: str, target: Target, calls: Calls) -> str:
    return run_check(modern_client.check(way, encode_target(target), calls, mode))


def _ours(mode: str, way: str, target: Target, calls: Calls) -> str:
    return run_check(our_client.check(way, encode_target(target), calls, mode))


def _typescript(script: str, mode: str, way: str, target: Target, calls: Calls) -> str:
    node, path = typescript_script(script, script)
    return PROCESSES[script].check([node, path], way, encode_target(target), json.dumps(calls), mode)


def _inspector(era: str, way: str, target: Target, calls: Calls) -> str:
    """List the tools, with the Inspector's report on their schemas, and call one."""
    with tempfile.TemporaryDirectory() as directory:
        if isinstance(target, str):
            where = ["--server-url", target, "--transport", way]
        else:
            config = Path(directory) / "config.json"
            config.write_text(json.dumps({"mcpServers": {"tested": target}}))
            where = ["--config", str(config), "--server", "tested"]
        base = [*where, "--protocol-era", era, "--format", "json"]
        listed = json.loads(_inspector_cli(*base, "--method", "tools/list", "--strict"))
        names = [listed_tool["name"] for listed_tool in _result(listed)["tools"]]
        warnings = sum(len(tool["findings"]) for tool in listed.get("schemaFindings", ()))
        name = next((name for name in calls if name in names), None)
        if name is None:
            raise Failed(f"none of {', '.join(calls)} is among the tools listed: {', '.join(names)}")
        arguments = ["--tool-name", name, "--tool-args-json", json.dumps(calls[name])]
        called = _result(json.loads(_inspector_cli(*base, "--method", "tools/call", *arguments)))
    if called.get("isError") or not called["content"]:
        raise Failed(f"{name} answered {called}")
    return f"{len(names)} tools, {warnings} warnings about schemas, {name} called"


def _inspector_cli(*arguments: str) -> str:
    """Return the output of the Inspector's command line."""
    with installing:
        home, node = installed_package("inspector", INSPECTOR)
        path = _copy_scripts(home, "inspector_cli")
    return PROCESSES["inspector_cli"].check([node, path], *arguments)


def _our_skills(way: str, target: Target, calls: Calls) -> str:
    """Read each file of each skill, and write the skills to folders."""
    with tempfile.TemporaryDirectory() as directory, Client(StreamableHTTP(encode_target(target))).blocking() as client:
        skills = client.list_skills()
        for skill in skills:
            skill.to_directory(directory)
        written = sum(path.is_file() for path in Path(directory).rglob("*"))
    if not written:
        raise Failed("no skill was written")
    return f"{len(skills)} skills, {written} files written"


def _typescript_skills(way: str, target: Target, calls: Calls) -> str:
    node, path = typescript_script("typescript_v2", "typescript_skills")
    return run_peer([node, path, encode_target(target)])


def _fastmcp_skills(way: str, target: Target, calls: Calls) -> str:
    """Read the skills whose values are the same in YAML 1.1 and 1.2."""
    python = client_python("fastmcp-skills", *FASTMCP)
    return run_peer([python, str(DIRECTORY / "fastmcp_skills.py"), encode_target(target), *QUOTED_SKILLS])


def _inspector_skills(way: str, target: Target, calls: Calls) -> str:
    """Verify each file and the frontmatter of each skill."""
    where = ["--server-url", encode_target(target), "--transport", way, "--protocol-era", "modern", "--format", "json"]
    printed = _inspector_cli(*where, "--method", "skills/list", "--verify")
    skills = [found for line in printed.splitlines() if "uri" in (found := json.loads(line))]
    complaints = [skill for skill in skills if not skill["ok"] or skill["frontmatter"] or _has_errors(skill)]
    if complaints or not skills:
        raise Failed(f"{len(skills)} skills, complaints: {complaints}")
    return f"{len(skills)} skills, {sum(len(skill['files']) for skill in skills)} files verified"


def _has_errors(skill: dict[str, Any]) -> bool:
    """Return True if a skill breaks a rule.

    The Inspector reports a dynamic skill, which cannot be verified, with a warning.
    """
    return any(finding["severity"] != "warning" for finding in skill["conformance"])


_OLD_WAYS = ("http", "sse", "websocket", "stdio")
_WAYS = ("http", "sse", "stdio")
_MODERN_WAYS = ("http", "stdio")
OURS = (
    Peer("mcp_django", _OLD_WAYS, partial(_ours, "auto"), ("http", "websocket", "stdio")),
    Peer("mcp_django, handshake era", _OLD_WAYS, partial(_ours, "handshake")),
)
"""Our own client, which is also tried on servers of others."""
PEERS = (
    *OURS,
    Peer("mcp 1.30", _OLD_WAYS, _legacy),
    Peer("mcp 2.3, legacy mode", _WAYS, partial(_modern, "legacy")),
    Peer("mcp 2.3, auto mode", _WAYS, partial(_modern, "auto"), _MODERN_WAYS),
    Peer("TypeScript 1.32", _OLD_WAYS, partial(_typescript, "typescript_v1", "legacy")),
    Peer("TypeScript 2.4, legacy mode", _WAYS, partial(_typescript, "typescript_v2", "legacy")),
    Peer("TypeScript 2.4, auto mode", _WAYS, partial(_typescript, "typescript_v2", "auto"), _MODERN_WAYS),
    Peer("Inspector, legacy era", _WAYS, partial(_inspector, "legacy")),
    Peer("Inspector, modern era", _MODERN_WAYS, partial(_inspector, "modern")),
)

SKILL_PEERS = (
    Peer("mcp_django, skills", ("http",), _our_skills),
    Peer("TypeScript 2.4, skills", ("http",), _typescript_skills, ("http",)),
    Peer("FastMCP 4.2, skills", ("http",), _fastmcp_skills),
    Peer("Inspector, skills", ("http",), _inspector_skills),
)
"""Clients that verify the skills of the fixtures."""


def legacy_python() -> str:
    """Return the interpreter of an environment with the 1.x client."""
    return client_python("legacy-client", LEGACY)


def client_python(directory: str, *requirements: str) -> str:
    """Return the interpreter of an environment with a client.

    The environment is made at the first use.
    """
    home, wanted = cache_directory() / directory, " ".join(requirements)
    python, marker = home / "bin" / "python", home / "installed"
    with lock_cache():
        if not (marker.is_file() and marker.read_text() == wanted and python.exists()):
            print_line(f"Installing {wanted} into {home}")
            output([sys.executable, "-m", "venv", "--clear", "--without-pip", str(home)], dict(os.environ))
            install = [find_uv_bin(), "--quiet", "pip", "install", "--python", str(python), *requirements]
            output(install, dict(os.environ), limit=600)
            marker.write_text(wanted)
    return str(python)


def typescript_script(package: str, script: str) -> tuple[str, str]:
    """Return the paths of Node and of a script.

    The script lies beside the package that it imports, a key of TYPESCRIPT, because Node looks there.
    """
    with installing:
        return _copied_script(package, script)


@functools.cache
def _copied_script(package: str, script: str) -> tuple[str, str]:
    home, node = installed_package(package, TYPESCRIPT[package])
    return node, _copy_scripts(home, script)


def _copy_scripts(home: Path, script: str) -> str:
    """Copy a script and its modules to the directory of its package; return its path."""
    for name in (script, "traveller", "reader", "requests"):
        shutil.copy(DIRECTORY / f"{name}.mjs", home)
    return str(home / f"{Path(script).name}.mjs")


def inspector_tool() -> list[str]:
    with installing:
        return installed_tool("inspector", INSPECTOR, "mcp-inspector")


def everything_server() -> list[str]:
    """Return the command of the TypeScript reference server, without the transport."""
    with installing:
        home, node = installed_package("everything", EVERYTHING)
    return [node, str(home / "node_modules" / "@modelcontextprotocol" / "server-everything" / "dist" / "index.js")]


def encode_target(target: Target) -> str:
    return target if isinstance(target, str) else json.dumps(target)


def _result(printed: dict[str, Any]) -> dict[str, Any]:
    """Return the result of the method.

    The Inspector prints it bare or below "result".
    """
    result: dict[str, Any] = printed.get("result", printed)
    return result


def run_check(check: Coroutine[Any, Any, str]) -> str:
    """Run a check of a client of this environment, and return its summary.

    The check has an event loop of its own. Raises Failed with the traceback.
    """
    try:
        return asyncio.run(asyncio.wait_for(check, LIMIT))
    except Exception as problem:
        raise Failed("".join(traceback.format_exception(problem))) from problem


def stop_processes() -> None:
    """Stop the processes of the peers."""
    for process in PROCESSES.values():
        process.stop()


def run_peer(command: list[str]) -> str:
    """Return the output of a command that runs a peer.

    The peer has a home directory of its own, so that it does not find the settings of the user.
    """
    with tempfile.TemporaryDirectory() as home:
        return output(command, {**os.environ, "HOME": home})


def output(command: list[str], environment: dict[str, str], *, limit: float = LIMIT) -> str:
    """Return the output of a command. Raises Failed with the output if it fails."""
    run = subprocess.run(
        command,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=limit,
        cwd=ROOT,
        env=environment,
        check=False,
    )
    if run.returncode:
        raise Failed(f"{Path(command[1]).name} ended with {run.returncode}\n{run.stdout}{run.stderr}".strip())
    return run.stdout.strip()
