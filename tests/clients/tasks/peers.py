"""Clients with tasks, of both kinds of tasks, and the place they are tried on."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from tests.clients.peers import TYPESCRIPT, Calls, Peer, Target, client_python, installing, legacy_python, run_peer
from tests.clients.places import Place, fixtures
from tests.clients.tasks.inspector import visit_inspector
from tests.conformance.npm import installed_package

FASTMCP = ("fastmcp==4.1.4", "fastmcp-tasks==4.1.4")
DIRECTORY = Path(__file__).parent


def _legacy(way: str, target: Target, calls: Calls) -> str:
    return run_peer([legacy_python(), str(DIRECTORY / "legacy_tasks.py"), way, str(target)])


def _fastmcp(way: str, target: Target, calls: Calls) -> str:
    return run_peer([client_python("fastmcp", *FASTMCP), str(DIRECTORY / "fastmcp_client.py"), way, str(target)])


def _typescript(package: str, script: str, mode: str, way: str, target: Target, calls: Calls) -> str:
    with installing:
        home, node = installed_package(package, TYPESCRIPT[package])
        for name in (script, "task_user"):
            shutil.copy(DIRECTORY / f"{name}.mjs", home)
    return run_peer([node, str(home / f"{script}.mjs"), way, str(target), "{}", mode])


def _inspector(era: str, way: str, target: Target, calls: Calls) -> str:
    return visit_inspector(str(target), era)


TASK_PEERS = (
    Peer("mcp 1.30", ("http",), _legacy),
    Peer("TypeScript 1.32", ("http",), partial(_typescript, "typescript_v1", "sdk_tasks", "legacy")),
    Peer("ext-tasks 0.2, core tasks", ("http",), partial(_typescript, "typescript_v2", "ext_tasks", "legacy")),
    Peer("ext-tasks 0.2, extension", ("http",), partial(_typescript, "typescript_v2", "ext_tasks", "auto"), ("http",)),
    Peer("fastmcp-tasks 4.1", ("http",), _fastmcp, ("http",)),
    Peer("Inspector, Tasks tab", ("http",), partial(_inspector, "modern")),
    Peer("Inspector, Tasks tab, core tasks", ("http",), partial(_inspector, "legacy")),
)


@contextmanager
def fixtures_with_tasks() -> Iterator[Place]:
    """Run the fixtures for all clients, and then for the clients with tasks."""
    with fixtures() as place:
        tasks = Place("tasks", {"http": place.ways["http"]}, TASK_PEERS)
        yield place._replace(others=(*place.others, tasks))
