"""The files around the code: what README shows runs, what pyproject promises holds, what is linked is there."""

import ast
import os
import re
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path
from types import ModuleType

import pytest
from asgiref.sync import async_to_sync
from django.contrib.auth.models import User

from mcp_django.notifications import tie
from mcp_django.server import registry
from mcp_django.server.answers import Answer

ROOT = Path(__file__).resolve().parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
EXTRAS = PROJECT["optional-dependencies"]
FENCE = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\[[^\]]*\]\((?!https?:|mailto:|#)([^)#\s]+)")


def tracked_files() -> list[Path]:
    """List the files that are in the repository, or would be after `git add`."""
    listing = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    if listing.returncode:
        pytest.skip("not a git checkout")
    return [path for name in listing.stdout.split("\0") if name and (path := ROOT / name).is_file()]


def pages() -> list[Path]:
    """List the pages people read."""
    return [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md")), *sorted(ROOT.glob("benchmarks/*.md"))]


def name_of(path: Path) -> str:
    """Name a file by its path in the repository."""
    return path.relative_to(ROOT).as_posix()


def python_blocks(path: Path) -> list[str]:
    """List the Python examples of a page."""
    return FENCE.findall(path.read_text(encoding="utf-8"))


@pytest.mark.parametrize("path", pages(), ids=name_of)
def test_python_on_a_page_is_python(path: Path) -> None:
    for block in python_blocks(path):
        ast.parse(block)


def served_by(block: str, monkeypatch: pytest.MonkeyPatch) -> tuple[ModuleType, registry.Registry]:
    """Run an example as an app's `mcp_tools` module; return the module, and the registry that it filled."""
    monkeypatch.setattr(registry, "REGISTRIES", {})
    # What an example ties to a model would be told of by every test after it.
    monkeypatch.setattr(tie._Tie, "connect", lambda self: None)
    module = ModuleType("example.mcp_tools")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    exec(compile(block, module.__name__, "exec"), module.__dict__)
    return module, registry.registry_for("default")


@pytest.mark.parametrize("path", pages(), ids=name_of)
def test_what_a_page_declares_can_be_declared(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for block in python_blocks(path):
        # The design shows what is still to come, and documents of OpenAPI are there only in the test of their page.
        if "from mcp_django import" in block and path.name not in ("design.md", "import-an-openapi-document.md"):
            _, served = served_by(block, monkeypatch)
            assert not served.problems
            declared = (served.tools, served.resources, served.templates, served.prompts, served.completers)
            assert any(len(kind) for kind in declared) or "@" not in block


class Person:
    """A context whose person says the same to every question."""

    def __init__(self, answer: Answer[bool]) -> None:
        self.answer = answer

    async def elicit(self, message: str) -> Answer[bool]:
        """Ask nobody."""
        return self.answer


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("answer", "said", "active"),
    [
        (Answer("accept", True), "Done.", False),
        (Answer("accept", False), "Left as it was.", True),
        (Answer("decline"), "Left as it was.", True),
    ],
)
def test_the_ten_lines_of_the_readme_do_what_they_say(
    answer: Answer[bool], said: str, active: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    block = next(block for block in python_blocks(ROOT / "README.md") if "@tool" in block)
    assert sum(bool(line) for line in block.splitlines()) == 10
    module, served = served_by(block, monkeypatch)
    assert [tool.name for tool in served.tools] == ["deactivate"]
    user = User.objects.create_user("ada")
    assert async_to_sync(module.deactivate)("ada", Person(answer)) == said
    user.refresh_from_db()
    assert user.is_active is active


@pytest.mark.parametrize("path", pages(), ids=name_of)
def test_links_between_pages_lead_somewhere(path: Path) -> None:
    broken = [link for link in LINK.findall(path.read_text(encoding="utf-8")) if not (path.parent / link).exists()]
    assert not broken


@pytest.mark.parametrize("path", pages(), ids=name_of)
def test_make_targets_on_a_page_exist(path: Path) -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    named = set(re.findall(r"(?:^|`)make ([a-z-]+)", path.read_text(encoding="utf-8"), re.MULTILINE))
    assert named <= targets


@pytest.mark.parametrize("requirement", [*PROJECT["dependencies"], *(r for extra in EXTRAS.values() for r in extra)])
def test_a_dependency_is_bounded_at_both_ends(requirement: str) -> None:
    ours = requirement.startswith(PROJECT["name"])
    assert ours or re.search(r">=[\d.]+,<[\d.]+$|==[\d.]+$", requirement)


def test_the_extra_all_is_every_extra_for_users() -> None:
    users = sorted(EXTRAS.keys() - {"all", "dev"})
    assert EXTRAS["all"] == [f"{PROJECT['name']}[{','.join(users)}]"]


def test_the_wheel_holds_the_package_and_nothing_else(tmp_path: Path) -> None:
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True, timeout=120)
    with zipfile.ZipFile(next(tmp_path.glob("*.whl"))) as wheel:
        names = wheel.namelist()
    assert {name.split("/")[0] for name in names if ".dist-info/" not in name} == {"mcp_django"}
    package = (p for p in (ROOT / "mcp_django").rglob("*") if p.is_file() and "__pycache__" not in p.parts)
    assert {name_of(path) for path in package} <= set(names)


# Spelled in pieces, so that this file is clean too.
FORBIDDEN = {
    "a path of one machine": re.compile(r"(?<![\w.:/])/(?:work|root|home|Users)/[a-z]\w*/"),
    "a page that is not in the repository": re.compile(r"(?<![\w/])(?:spec|research|seeds|shared)/[\w.-]+"),
    "something unfinished": re.compile(r"\b(?:TO" + "DO|FIX" + r"ME|X" + r"XX)\b"),
    "a banner": re.compile(r"^\s*(?:#|//) ?[-=*#]{8,}", re.MULTILINE),
    "a package registry's host": re.compile(r"registry\.npmjs" + r"\.org|files\.pythonhosted" + r"\.org"),
}


@pytest.mark.parametrize("kind", FORBIDDEN)
def test_no_file_holds(kind: str) -> None:
    found = []
    for path in tracked_files():
        try:
            text = path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue  # a picture
        found += [f"{name_of(path)}: {match[0]}" for match in FORBIDDEN[kind].finditer(text)]
    assert not found


@pytest.mark.parametrize("script", [".ci/run", "scripts/environment", "manage.py"])
def test_a_script_is_executable(script: str) -> None:
    assert os.access(ROOT / script, os.X_OK)
