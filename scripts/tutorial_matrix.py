"""Follow the tutorial literally with a wheel in empty environments, for each Python and Django, with real clients.

usage: scripts/tutorial_matrix.py [--wheel FILE] [--python PROGRAM ...] [--django VERSION ...] [--keep FOLDER]

Without `--wheel`, the wheel is built first, which requires hatchling. Without `--python`, each released CPython of the
machine is used, and without `--django` each release that pyproject.toml names. Combinations that Django does not
support are left out. pip fetches the packages, so a network is required.

The `sh` blocks of docs/start/tutorial.md run in one shell, and each Python block is written to the file in its first
line. Three things differ from the page: the wheel replaces the checkout, a free port for 8000, and before the server
stops, scripts/tutorial_clients.py calls it from an environment with the extra `client`.
"""

import argparse
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs/start/tutorial.md"
BLOCK = re.compile(r"^```(sh|python)\n(.*?)^```", re.MULTILINE | re.DOTALL)
FILE = re.compile(r"# ([\w/]+\.py)(, at the end)?\n")
CHECKOUT = "path/to/checkout"
STOP_SERVER = "kill $!"
TIMEOUT_SECONDS = 600
LEAST_PYTHON = {"5.2": (3, 10), "6.0": (3, 12), "6.1": (3, 12)}
"""The first Python that each Django supports."""


def build_script(page: str, port: int, *, before_stop: str = "") -> str:
    """Build a shell script from the blocks of a page.

    Args:
        page: The text of the page.
        port: The port instead of 8000.
        before_stop: A command to run before the page stops its server.

    Raises:
        ValueError: A Python block names no file, or the page does not stop its server.
    """
    lines = ["set -e", "trap 'kill $(jobs -p) 2>/dev/null || true' EXIT"]
    for kind, text in BLOCK.findall(page):
        if kind == "sh":
            lines += text.splitlines()
            continue
        file = FILE.match(text)
        if file is None:
            raise ValueError(f"The block names no file: {text[:60]}")
        lines.append(f"cat {'>>' if file[2] else '>'} {file[1]} <<'END_OF_FILE'\n{text}END_OF_FILE")
    if STOP_SERVER not in lines:
        raise ValueError(f"The page has no line {STOP_SERVER}.")

    script = "\n".join(lines).replace("8000", str(port))
    return script.replace(f"\n{STOP_SERVER}", f"\n{before_stop}\n{STOP_SERVER}") if before_stop else script


def follow_tutorial(
    wheel: Path, python: str, django: str, folder: Path, *, clients: str = ""
) -> subprocess.CompletedProcess[str]:
    """Follow the tutorial in an empty folder, and return its process with all output.

    `clients` is an interpreter with both clients. Without it, the wheel is installed with its extra `client`.
    """
    (folder / "bin").mkdir(parents=True)
    (folder / "bin/python3").symlink_to(find_interpreter(python))
    (folder / "constraints.txt").write_text(f"django~={django}.0\n", encoding="utf-8")
    (folder / "shop").mkdir()
    environment = build_environment(folder)
    clients = clients or str(make_client_environment(wheel, folder, environment))

    port = find_free_port()
    call_clients = f"{clients} {ROOT / 'scripts/tutorial_clients.py'} http://127.0.0.1:{port}/mcp"
    script = build_script(PAGE.read_text(encoding="utf-8"), port, before_stop=call_clients)
    return subprocess.run(
        ["bash", "-c", script.replace(CHECKOUT, str(wheel))],  # noqa: S607
        cwd=folder / "shop",
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=TIMEOUT_SECONDS,
        check=False,
    )


def find_interpreter(python: str) -> str:
    """Return the path of an interpreter itself, not of a link to it."""
    code = "import sys; print(sys._base_executable)"
    return subprocess.check_output([python, "-c", code], text=True).strip()


def build_environment(folder: Path) -> dict[str, str]:
    """Build the variables of a reader's shell, with the interpreter in front and one Django allowed."""
    private = {"DJANGO_SETTINGS_MODULE", "PYTHONPATH", "VIRTUAL_ENV"}
    inherited = {name: value for name, value in os.environ.items() if name not in private}
    return inherited | {
        "PATH": f"{folder / 'bin'}{os.pathsep}{os.environ['PATH']}",
        "HOME": str(folder),
        "PIP_CONSTRAINT": str(folder / "constraints.txt"),
        "PIP_DISABLE_PIP_VERSION_CHECK": "1",
        "PIP_NO_COMPILE": "1",
        "PIP_QUIET": "2",
    }


def make_client_environment(wheel: Path, folder: Path, environment: dict[str, str]) -> Path:
    """Install the wheel with the extra `client`, and return the interpreter."""
    place = folder / "clients"
    subprocess.run([folder / "bin/python3", "-m", "venv", place], env=environment, check=True)
    install = [place / "bin/python", "-m", "pip", "install", f"{wheel}[client]"]
    subprocess.run(install, env=environment, check=True)
    return place / "bin/python"


def find_free_port() -> int:
    """Return a port of loopback that nothing uses."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
    return port


def list_interpreters() -> Iterator[str]:
    """Yield the newest of each released CPython of this machine, from 3.11 on."""
    home = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv")
    for minor in range(11, 20):
        found = [*sorted(home.glob(f"versions/3.{minor}.*/bin/python3")), shutil.which(f"python3.{minor}")]
        for candidate in filter(None, found):
            if read_python_version(str(candidate)) == (3, minor):
                yield str(candidate)
                break


def read_python_version(python: str) -> tuple[int, int] | None:
    """Return the version of an interpreter, None if it does not run."""
    code = "import ensurepip, sys; print(*sys.version_info[:2])"
    ran = subprocess.run([python, "-c", code], capture_output=True, text=True, check=False)
    return None if ran.returncode else (int(ran.stdout.split()[0]), int(ran.stdout.split()[1]))


def list_django_versions() -> list[str]:
    """List the releases of Django that pyproject.toml names."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return re.findall(r"Framework :: Django :: ([\d.]+)", "\n".join(project["classifiers"]))


def build_wheel(folder: Path) -> Path:
    """Build the wheel of this checkout."""
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
    return next(folder.glob("*.whl"))


def main() -> None:
    """Follow the tutorial for each combination, and print a line for each."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--wheel", type=Path, help="the wheel to install")
    parser.add_argument("--python", nargs="+", help="interpreters")
    parser.add_argument("--django", nargs="+", help="releases of Django, such as 5.2")
    parser.add_argument("--keep", type=Path, help="folder that keeps the projects and the output")
    options = parser.parse_args()

    failed = 0
    with tempfile.TemporaryDirectory() as temporary:
        place = (options.keep or Path(temporary)).resolve()
        wheel = options.wheel.resolve() if options.wheel else build_wheel(Path(temporary))
        for python in options.python or list_interpreters():
            version = read_python_version(python)
            if version is None:
                sys.exit(f"{python} does not run.")
            for django in options.django or list_django_versions():
                name = f"Python {version[0]}.{version[1]}, Django {django}"
                if version < LEAST_PYTHON[django]:
                    print(f"{name}: not supported by Django", flush=True)
                    continue
                folder = place / f"python{version[0]}.{version[1]}-django{django}"
                ran = follow_tutorial(wheel, python, django, folder)
                (folder / "output.txt").write_text(ran.stdout, encoding="utf-8")
                print(f"{name}: {'FAILED' if ran.returncode else 'passed'}", flush=True)
                if ran.returncode:
                    failed += 1
                    print(ran.stdout[-4000:], flush=True)
    sys.exit(bool(failed))


if __name__ == "__main__":
    main()
