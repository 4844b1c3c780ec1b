"""Virtual environments of peers whose requirements do not agree with ours.

An environment is made once, in the user's cache directory, and kept. Its name depends on its requirements, so that
another version gets another environment.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import venv
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path

FASTMCP = "fastmcp==4.1.6"
DJANGO_MCP_SERVER = "django-mcp-server==0.5.7"
OVERRIDES = "certifi\n"
"""FastMCP requires a newer certifi than some indexes have. Any version works for requests on loopback."""

SHARED = ("uvicorn", "uvloop", "httptools")
"""Packages of the web server, which all peers have in the version that is installed here."""
DJANGO = ("django", "djangorestframework")
"""Packages of the peers that are apps of Django."""


class Unavailable(Exception):
    """A peer cannot be installed on this machine. The run continues without it."""


def cache_directory() -> Path:
    """Return the directory with the environments of the peers."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "mcp-django-benchmarks"


def fastmcp_python() -> str:
    """Return the interpreter of an environment with FastMCP.

    The environment is made if it does not exist. Raises Unavailable.
    """
    return _python(FASTMCP, SHARED)


def django_mcp_server_python() -> str:
    """Return the interpreter of an environment with django-mcp-server.

    The environment is made if it does not exist. Raises Unavailable. The package requires `mcp` 1.8 or later without an
    upper bound, but imports names that version 2 has moved.
    """
    return _python(DJANGO_MCP_SERVER, (*SHARED, *DJANGO), "mcp>=1.8,<2")


def _python(peer: str, shared: Sequence[str], *more: str) -> str:
    """Return the interpreter of an environment with a peer.

    Args:
        peer: The pinned requirement.
        shared: The packages that have the version that is installed here.
        more: Further requirements.
    """
    wanted = [peer, *more, *(f"{name}=={version(name)}" for name in shared)]
    digest = hashlib.sha256("\n".join([sys.version, OVERRIDES, *wanted]).encode()).hexdigest()[:12]
    directory = cache_directory() / f"{peer.replace('==', '-')}-{digest}"
    python = directory / "bin" / "python"
    finished = directory / "finished"
    if not finished.exists():
        shutil.rmtree(directory, ignore_errors=True)
        try:
            _install(directory, python, wanted)
        except (OSError, subprocess.CalledProcessError) as error:
            detail = getattr(error, "stderr", None) or str(error)
            raise Unavailable(f"{peer} could not be installed: {detail.strip()[-400:]}") from error
        finished.touch()
    return str(python)


def _install(directory: Path, python: Path, wanted: list[str]) -> None:
    """Install requirements with uv, because pip cannot override those of a package.

    If uv is missing, pip installs it into the environment first.
    """
    venv.create(directory, with_pip=True)
    overrides = directory / "overrides.txt"
    overrides.write_text(OVERRIDES)
    uv = shutil.which("uv")
    if uv is None:
        _quietly([str(python), "-m", "pip", "install", "--quiet", "uv"])
        uv = str(directory / "bin" / "uv")
    _quietly([uv, "pip", "install", "--quiet", "--python", str(python), "--override", str(overrides), *wanted])


def _quietly(command: list[str]) -> None:
    subprocess.run(command, check=True, capture_output=True, text=True)
