"""Build the wheel and the source distribution, and check them: `make dist`.

The script also lists the packages that they depend on. Results:

* `dist/`: the wheel and the source distribution, nothing else, because a publisher uploads the whole folder
* `build/release/SHA256SUMS`: the digests of both
* `build/release/*.cdx.json`: a bill of materials in CycloneDX's format, of all extras
* `build/release/THIRD-PARTY-LICENSES.md`: name, version, licence and address of each of these packages

Both distributions are reproducible: their times are `SOURCE_DATE_EPOCH`, otherwise the time of the last commit. The
tools are the group `release` of pyproject.toml. They live in `.venv-release`, beside the environment of the tests.
"""

import hashlib
import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

from uv import find_uv_bin

ROOT = Path(__file__).resolve().parent.parent
DIST = ROOT / "dist"
RECORDS = ROOT / "build/release"
DEPENDENCIES = ROOT / "build/dependencies"
TOOLS = ROOT / ".venv-release"
LEAST_RATING = 8
"""Of the ten points that pyroma gives. The last two are for the owner's address and for a home page."""


def main() -> None:
    """Build, check and list."""
    for folder in (DIST, RECORDS):
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
    epoch = os.environ.get("SOURCE_DATE_EPOCH") or read_commit_time()

    distributions = build_distributions(DIST, epoch)
    make_tools()
    check_distributions(distributions)
    write_digests(distributions)
    write_inventory(next(path for path in distributions if path.suffix == ".whl"), epoch)

    for path in (*distributions, *sorted(RECORDS.iterdir())):
        print(path.relative_to(ROOT))


def read_commit_time() -> str:
    """Return the time of the last commit, in seconds since 1970."""
    return subprocess.check_output(["git", "log", "-1", "--format=%ct"], cwd=ROOT, text=True).strip()  # noqa: S607


def build_distributions(folder: Path, epoch: str) -> list[Path]:
    """Build the source distribution and the wheel into a folder."""
    build = [sys.executable, "-m", "hatchling", "build", "-t", "sdist", "-t", "wheel", "-d", str(folder)]
    subprocess.run(build, cwd=ROOT, env={**os.environ, "SOURCE_DATE_EPOCH": epoch}, check=True, capture_output=True)
    return sorted(folder.iterdir())


def make_tools() -> None:
    """Make or complete the environment of the tools."""
    if not (TOOLS / "bin/python").exists():
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(TOOLS)], check=True)
    install(TOOLS, "--group", f"{ROOT / 'pyproject.toml'}:release")


def install(environment: Path, *requirements: str) -> None:
    """Install requirements into an environment, with the uv of this one."""
    uv = [find_uv_bin(), "--quiet", "pip", "install", "--python", str(environment / "bin/python")]
    subprocess.run([*uv, *requirements], check=True)


def check_distributions(distributions: list[Path]) -> None:
    """Check the metadata, the description and the contents as an index and its readers see them."""
    wheels = [str(path) for path in distributions if path.suffix == ".whl"]
    sources = [str(path) for path in distributions if path.suffix != ".whl"]
    run_tool("twine", "--no-color", "check", "--strict", *wheels, *sources)
    run_tool("check-wheel-contents", *wheels)
    run_tool("pyroma", "--min", str(LEAST_RATING), *sources)


def run_tool(name: str, *arguments: str) -> None:
    """Run a tool of the group `release`; its failure ends the build."""
    subprocess.run([str(TOOLS / "bin" / name), *arguments], cwd=ROOT, check=True)


def write_digests(distributions: list[Path]) -> None:
    """Write the digests in the form that `sha256sum --check` reads in `dist/`."""
    lines = [f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in distributions]
    (RECORDS / "SHA256SUMS").write_text("".join(lines), encoding="utf-8")


def write_inventory(wheel: Path, epoch: str) -> None:
    """Install the wheel with all extras into an empty environment, and list the packages found there."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    subprocess.run([sys.executable, "-m", "venv", "--clear", "--without-pip", str(DEPENDENCIES)], check=True)
    install(DEPENDENCIES, f"{wheel}[all]")

    python = str(DEPENDENCIES / "bin/python")
    os.environ["SOURCE_DATE_EPOCH"] = epoch
    run_tool(
        "cyclonedx-py",
        *("environment", "--pyproject", "pyproject.toml", "--mc-type", "library", "--output-reproducible"),
        *("--output-file", str(RECORDS / f"{project['name']}-{project['version']}.cdx.json"), python),
    )
    run_tool(
        "pip-licenses",
        *("--python", python, "--ignore-packages", project["name"], "--with-urls", "--fail-on", "UNKNOWN"),
        *("--format", "markdown", "--output-file", str(RECORDS / "THIRD-PARTY-LICENSES.md")),
    )


if __name__ == "__main__":
    main()
