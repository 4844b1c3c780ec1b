"""The wheel and the source distribution: their contents, and the equality of two builds."""

import re
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from importlib.metadata import version
from pathlib import Path, PurePosixPath

import pytest

from mcp_django.client import client
from mcp_django.conf import project
from scripts.distributions import build_distributions
from tests.repository.pages import ROOT, name_of, tracked_files

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
EPOCH = "1700000000"
NAMES_WITHOUT_SUFFIX = {"mcp_django/py.typed", "mcp_django/contrib/apps/static/mcp_apps/uplot/LICENSE"}
WHEEL_SUFFIXES = {".css", ".html", ".js", ".md", ".mo", ".py", ".svg"}
SOURCE_FOLDERS = {"benchmarks", "docs", "mcp_django", "project", "scripts", "templates", "tests"}
SOURCE_FILES = {".gitignore", "CHANGELOG.md", "CONTRIBUTING.md", "LICENSE", "PKG-INFO", "README.md", "SECURITY.md"}
SOURCE_FILES |= {"manage.py", "pyproject.toml"}
RELATIVE_LINK = re.compile(r"\[[^\]]*\]\((?!https?:|mailto:|#)([^)#\s]+)")


@pytest.fixture(scope="module")
def distributions(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the wheel and the source distribution."""
    folder = tmp_path_factory.mktemp("dist")
    build_distributions(folder, EPOCH)
    return folder


@pytest.fixture(scope="module")
def wheel(distributions: Path) -> zipfile.ZipFile:
    """The wheel."""
    return zipfile.ZipFile(next(distributions.glob("*.whl")))


@pytest.fixture(scope="module")
def source(distributions: Path) -> set[str]:
    """Paths of the files of the source distribution, relative to its only folder."""
    with tarfile.open(next(distributions.glob("*.tar.gz"))) as archive:
        return {member.name.partition("/")[2] for member in archive.getmembers() if member.isfile()}


def test_two_builds_are_equal(distributions: Path, tmp_path: Path) -> None:
    build_distributions(tmp_path, EPOCH)
    first = {path.name: path.read_bytes() for path in distributions.iterdir()}
    second = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    assert first.keys() == second.keys()
    assert [name for name in first if first[name] != second[name]] == []


def test_the_version_is_in_one_place(wheel: zipfile.ZipFile) -> None:
    metadata = wheel.read(f"mcp_django_channels-{PROJECT['version']}.dist-info/METADATA").decode()
    assert f"\nVersion: {PROJECT['version']}\n" in metadata
    assert client.CLIENT_INFO.version == version(PROJECT["name"])
    pattern = re.compile(rf"(?<![\d.]){re.escape(PROJECT['version'])}(?![\d.])")
    code = [*(ROOT / "mcp_django").rglob("*.py"), *(ROOT / "project").rglob("*.py")]
    assert [name_of(path) for path in code if pattern.search(path.read_text(encoding="utf-8"))] == []


def test_a_copy_without_metadata_has_a_client(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(project, "DISTRIBUTION", "a-distribution-that-is-not-installed")
    assert project.read_version() == "0"


def test_the_wheel_holds_the_package_and_nothing_else(wheel: zipfile.ZipFile) -> None:
    names = set(wheel.namelist())
    metadata = {name for name in names if ".dist-info/" in name}
    assert {name.split("/", 1)[1] for name in metadata} == {"METADATA", "WHEEL", "RECORD", "licenses/LICENSE"}

    package = {name_of(path) for path in tracked_files() if name_of(path).startswith("mcp_django/")}
    assert names - metadata == {name for name in package if not name.endswith(".po")}
    assert names >= {"mcp_django/py.typed", "mcp_django/locale/de/LC_MESSAGES/django.mo"}
    suffixes = {PurePosixPath(name).suffix for name in names - metadata - NAMES_WITHOUT_SUFFIX}
    assert suffixes == WHEEL_SUFFIXES


def test_the_source_distribution_holds_tracked_files_of_known_folders(source: set[str]) -> None:
    assert {name for name in source if "/" not in name} == SOURCE_FILES
    assert {name.split("/")[0] for name in source if "/" in name} == SOURCE_FOLDERS
    tracked = {name_of(path) for path in tracked_files()}
    assert source - tracked == {"PKG-INFO"}
    assert {name for name in tracked if name.startswith(("mcp_django/", "tests/"))} <= source


def test_the_source_distribution_builds_the_same_wheel(distributions: Path, tmp_path: Path) -> None:
    with tarfile.open(next(distributions.glob("*.tar.gz"))) as archive:
        archive.extractall(tmp_path, filter="data")
    (unpacked,) = tmp_path.iterdir()
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    subprocess.run(build, cwd=unpacked, env={"SOURCE_DATE_EPOCH": EPOCH}, check=True, capture_output=True, timeout=240)
    built = next(distributions.glob("*.whl"))
    assert (tmp_path / built.name).read_bytes() == built.read_bytes()


def test_the_readme_on_an_index_names_files_of_the_source_distribution(
    wheel: zipfile.ZipFile, source: set[str]
) -> None:
    readme = wheel.read(f"mcp_django_channels-{PROJECT['version']}.dist-info/METADATA").decode()
    assert not RELATIVE_LINK.findall(readme)
    named = re.findall(r"\(`([\w./-]+)`\)", readme)
    assert len(named) > 20
    assert not {name for name in named if name not in source}
