"""Tools and packages from npm, kept in a cache directory and run under a Node that is new enough for them."""

import fcntl
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

NODE = (22, 19)
"""The conformance suite needs Node 22 and the Inspector this minor version of it, or newer ones."""


def cache_directory() -> Path:
    """Where tools from npm are kept: under $XDG_CACHE_HOME, or `.cache` in the repository."""
    root = os.environ.get("XDG_CACHE_HOME")
    return Path(root) / "mcp_django" if root else Path(__file__).parents[2] / ".cache"


@contextmanager
def lock_cache() -> Iterator[None]:
    """Keep other processes and threads from installing at the same time."""
    cache_directory().mkdir(parents=True, exist_ok=True)
    with (cache_directory() / "lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def installed_tool(directory: str, package: str, command: str) -> list[str]:
    """The command line of a tool from npm, under a Node that is new enough for it."""
    home, node = installed_package(directory, package)
    return [node, str((home / "node_modules" / ".bin" / command).resolve())]


def installed_package(directory: str, package: str) -> tuple[Path, str]:
    """Where a package from npm is installed, or several with blanks between, and a Node that is new enough for it."""
    home = installed_files(directory, package, with_node=True)
    return home, _node(home)


def installed_files(directory: str, package: str, *, with_node: bool = False) -> Path:
    """Where a package from npm is installed whose programs run under any Node: a new one has 190 MB."""
    home = cache_directory() / directory
    marker = home / "installed"
    with lock_cache():
        if not marker.is_file() or marker.read_text() != package:
            _npm_install(home, package, with_node=with_node)
            marker.write_text(package)
    return home


def _npm_install(home: Path, package: str, *, with_node: bool) -> None:
    npm = shutil.which("npm")
    if npm is None:
        raise SystemExit(
            "npm is needed to fetch the conformance suite, the Inspector and clients; install it with Node.js"
        )
    home.mkdir(parents=True, exist_ok=True)
    (home / "package.json").write_text("{}")
    packages = [*package.split(), *([f"node@{NODE[0]}"] if with_node and _known_node() is None else [])]
    sys.stderr.write(f"Installing {' and '.join(packages)} into {home}\n")
    command = [npm, "install", "--prefix", str(home), "--no-fund", "--no-audit", "--loglevel", "error", *packages]
    run = subprocess.run(command, capture_output=True, text=True, timeout=600)
    if run.returncode:
        raise SystemExit(f"npm could not install {package}:\n{run.stdout}{run.stderr}")


def _known_node() -> str | None:
    """A Node that is new enough: the machine's, or one that came with any of the packages here."""
    brought = sorted(cache_directory().glob("*/node_modules/.bin/node"))
    return next((node for node in (shutil.which("node"), *map(str, brought)) if _new_enough(node)), None)


def _node(home: Path) -> str:
    node = _known_node()
    if node is None:
        raise SystemExit(f"Node {NODE[0]}.{NODE[1]} or newer is needed, and npm could not bring one into {home}")
    return node


def _new_enough(node: str | None) -> bool:
    if node is None or not Path(node).exists():
        return False
    version = subprocess.run([node, "--version"], capture_output=True, text=True, timeout=30).stdout
    found = re.match(r"v(\d+)\.(\d+)", version)
    return found is not None and (int(found[1]), int(found[2])) >= NODE
