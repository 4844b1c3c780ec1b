"""An environment for each project, with the package added by the steps of the documentation."""

import hashlib
import os
import subprocess
import sys
from pathlib import Path

from scripts.tutorial_matrix import list_interpreters, read_python_version
from tests.real_projects.projects import TOOLS, RealProject
from tests.support.services import POSTGRES_URL

ROOT = Path(__file__).resolve().parents[2]
CACHE = ROOT / ".cache" / "real-projects"


class MissingSources(Exception):
    """A project is on no package index, and the command names no folder with its sources."""


def find_interpreter(project: RealProject) -> str:
    """Return the newest interpreter of the machine that a project takes.

    Raises:
        SystemExit: the machine has no such interpreter.
    """
    lowest = tuple(map(int, project.python.split(".")))
    found = [path for path in list_interpreters() if (read_python_version(path) or (0, 0)) >= lowest]
    if not found:
        raise SystemExit(f"{project.name} needs Python {project.python} or newer; install one")
    return found[-1]


def create_environment(project: RealProject, sources: Path | None) -> Path:
    """Return the interpreter of the project's environment, with the project, this checkout and the tools installed.

    Raises:
        MissingSources: the project needs its sources.
    """
    requirements = [*project.requirements]
    if not requirements:
        if sources is None:
            raise MissingSources(f"{project.name} is on no package index; name a checkout: --{project.name} FOLDER")
        requirements = ["-r", str(sources / "requirements.txt")]
    folder = CACHE / project.name
    python = folder / "bin" / "python"
    if not python.exists():
        run("uv", "venv", "--quiet", "--python", find_interpreter(project), str(folder))
    run("uv", "pip", "install", "--quiet", "--python", str(python), *requirements)
    # The documentation's step: `pip install path/to/checkout`; DRF is there already where a project has an API.
    run("uv", "pip", "install", "--quiet", "--python", str(python), "-e", str(ROOT), *TOOLS)
    return python


def build_environment_variables(project: RealProject, sources: Path | None, database: str) -> dict[str, str]:
    """Return the variables of a process in the project's environment."""
    folders = [str(ROOT), *([str(sources / project.name)] if sources is not None else [])]
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(folders),
        "DJANGO_SETTINGS_MODULE": f"tests.real_projects.{project.name}.settings",
        "REAL_PROJECT_DATABASE": database,
        "REAL_PROJECT_FILES": str(CACHE / f"{project.name}-files"),
        "MCP_TEST_POSTGRES": POSTGRES_URL,
        "NETBOX_CONFIGURATION": "tests.real_projects.netbox.configuration",
    }


def build_key(project: RealProject, python: Path) -> str:
    """Return a key of the releases in the environment: a migrated database is kept under it."""
    installed = run("uv", "pip", "freeze", "--quiet", "--python", str(python))
    migrations = sorted((ROOT / "mcp_django").rglob("migrations/*.py"))
    digest = hashlib.sha256(installed.encode() + b"".join(path.read_bytes() for path in migrations))
    return f"{project.name}_{digest.hexdigest()[:12]}"


def run(program: str, *arguments: str) -> str:
    """Run a program of this environment; return its output.

    Raises:
        SystemExit: it failed; its errors are printed.
    """
    finished = subprocess.run(
        [str(Path(sys.executable).parent / program), *arguments], capture_output=True, text=True, check=False
    )
    if finished.returncode:
        raise SystemExit(f"{program} {' '.join(arguments)} failed:\n{finished.stderr[-3000:]}")
    return finished.stdout
