"""Where the peers come from: a virtual environment of its own for a peer whose pins do not agree with ours.

It is made once, under the user's cache directory, and kept; its name stands for what is in it, so that a new version
makes a new one.
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
"""FastMCP asks for a newer certifi than every index has; any will do for requests on loopback."""

SHARED = ("uvicorn", "uvloop", "httptools")
"""The same server for all, in the version that is installed here."""
DJANGO = ("django", "djangorestframework")
"""For the peers that are apps of Django."""


class Unavailable(Exception):
    """A peer cannot be installed on this machine; the run goes on without it."""


def cache_directory() -> Path:
    """Where the environments of the peers are kept."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "mcp-django-benchmarks"


def fastmcp_python() -> str:
    """The interpreter of an environment that has FastMCP; made when it is not there. Raises Unavailable."""
    return _python(FASTMCP, SHARED)


def django_mcp_server_python() -> str:
    """The interpreter of an environment that has django-mcp-server; made when it is not there. Raises Unavailable.

    It says that it takes every `mcp` from 1.8 on, and imports what version 2 has moved.
    """
    return _python(DJANGO_MCP_SERVER, (*SHARED, *DJANGO), "mcp>=1.8,<2")


def _python(peer: str, shared: Sequence[str], *more: str) -> str:
    """
    Args:
        peer: The requirement, pinned.
        shared: What has the version that is installed here.
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
    """uv does it, because pip has no way to override a dependency's pin; where there is none it is installed first."""
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
