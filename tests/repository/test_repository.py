"""The files around the code: the README's example runs, pyproject's promises hold, and links lead to files."""

import ast
import os
import re
import tomllib
from itertools import chain

import pytest
from asgiref.sync import async_to_sync
from django.contrib.auth.models import User

from mcp_django import Server
from mcp_django.extensions import Extension
from mcp_django.server.context.responses import ElicitationResult
from tests.repository.pages import ROOT, name_of, pages, python_blocks, served_by, tracked_files

PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
PROJECT = PYPROJECT["project"]
EXTRAS = PROJECT["optional-dependencies"]
GROUPS = PYPROJECT.get("dependency-groups", {})
LINK = re.compile(r"\[[^\]]*\]\((?!https?:|mailto:|#)([^)#\s]+)")
# Spelled in pieces, so that this file is clean too.
FORBIDDEN = {
    "a path of one machine": re.compile(r"(?<![\w.:/])/(?:work|root|home|Users)/[a-z]\w*/"),
    "a page that is not in the repository": re.compile(r"(?<![\w/])(?:spec|research|seeds|shared)/[\w.-]+"),
    "something unfinished": re.compile(r"\b(?:TO" + "DO|FIX" + r"ME|X" + r"XX)\b"),
    "a banner": re.compile(r"^\s*(?:#|//) ?[-=*#]{8,}", re.MULTILINE),
    "a package registry's host": re.compile(r"registry\.npmjs" + r"\.org|files\.pythonhosted" + r"\.org"),
}


def test_python_on_pages_can_be_parsed() -> None:
    wrong = []
    for path in pages():
        for block in python_blocks(path):
            try:
                ast.parse(block)
            except SyntaxError as problem:
                wrong.append(f"{name_of(path)}: {problem}\n{block}")
    assert not wrong, "\n".join(wrong)


def test_examples_on_pages_can_be_declared(subtests: pytest.Subtests) -> None:
    for path in pages():
        # The OpenAPI example needs the documents of its own test, the tutorial makes a project that its test runs, and
        # recipes need the modules of theirs (tests/recipes).
        elsewhere = (ROOT / "docs/expose/openapi.md", ROOT / "docs/start/tutorial.md")
        if path in elsewhere or path.parent == ROOT / "docs/recipes":
            continue
        for block in python_blocks(path):
            if "from mcp_django import" not in block:
                continue
            with subtests.test(page=name_of(path), block=block[:80]), pytest.MonkeyPatch.context() as monkeypatch:
                module, served = served_by(block, monkeypatch)
                assert not served.problems
                declared = (served.tools, served.resources, served.templates, served.prompts, served.completers)
                extensions = [
                    value()
                    for value in vars(module).values()
                    if isinstance(value, type) and issubclass(value, Extension) and value is not Extension
                ]
                Server("example", extensions=extensions)
                assert any(len(kind) for kind in declared) or extensions or "@" not in block


class FakeContext:
    """A context whose user gives the same answer to every question."""

    def __init__(self, answer: ElicitationResult[bool]) -> None:
        self.answer = answer

    async def elicit(self, message: str) -> ElicitationResult[bool]:
        """Return the answer."""
        return self.answer


@pytest.mark.django_db
def test_the_readme_example_deactivates_a_user_after_consent(monkeypatch: pytest.MonkeyPatch) -> None:
    block = next(block for block in python_blocks(ROOT / "README.md") if "@tool" in block)
    assert sum(bool(line) for line in block.splitlines()) == 10
    module, served = served_by(block, monkeypatch)
    assert [tool.name for tool in served.tools] == ["deactivate"]
    user = User.objects.create_user("ada")
    deactivate = async_to_sync(module.deactivate)
    for refusal in (ElicitationResult("accept", False), ElicitationResult("decline")):
        assert deactivate("ada", FakeContext(refusal)) == "Left as it was."
        user.refresh_from_db()
        assert user.is_active
    assert deactivate("ada", FakeContext(ElicitationResult("accept", True))) == "Done."
    user.refresh_from_db()
    assert not user.is_active


def test_links_between_pages_lead_to_files() -> None:
    broken = [
        f"{name_of(path)}: {link}"
        for path in pages()
        for link in LINK.findall(path.read_text(encoding="utf-8"))
        if not (path.parent / link).exists()
    ]
    assert not broken, "\n".join(broken)


def test_tests_named_by_the_security_promises_exist() -> None:
    page = (ROOT / "docs/protect/security.md").read_text(encoding="utf-8")
    named = set(re.findall(r"`([\w/]+/test_\w+\.py)`", page))
    assert len(named) > 15
    assert [name for name in sorted(named) if not (ROOT / "tests" / name).is_file()] == []


def test_make_targets_on_pages_exist() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    named = re.compile(r"(?:^|`)make ([a-z-]+)", re.MULTILINE)
    missing = [
        f"{name_of(path)}: make {target}"
        for path in pages()
        for target in named.findall(path.read_text(encoding="utf-8"))
        if target not in targets
    ]
    assert not missing, "\n".join(missing)


def test_dependencies_are_bounded_at_both_ends() -> None:
    declared = [*PROJECT["dependencies"], *chain.from_iterable([*EXTRAS.values(), *GROUPS.values()])]
    requirements = [one for one in declared if isinstance(one, str)]  # A group may include another one.
    bounded = re.compile(r">=[\d.]+(,!=[\d.]+)*,<[\d.]+$|==[\d.]+$")
    unbounded = [one for one in requirements if not one.startswith(PROJECT["name"]) and not bounded.search(one)]
    assert not unbounded


def test_the_extra_all_is_every_extra_for_users() -> None:
    users = sorted(EXTRAS.keys() - {"all"})
    assert EXTRAS["all"] == [f"{PROJECT['name']}[{','.join(users)}]"]


def test_a_site_that_needs_no_development_server_installs_no_twisted() -> None:
    assert not [one for one in PROJECT["dependencies"] if one.startswith("daphne")]
    assert [one for one in PROJECT["dependencies"] if one.startswith("channels")]
    assert EXTRAS["daphne"]


def test_development_requirements_are_a_group_and_not_published() -> None:
    assert "dev" in GROUPS
    assert not EXTRAS.keys() & GROUPS.keys()
    script = (ROOT / "scripts/environment").read_text(encoding="utf-8")
    assert "--group dev" in script
    assert '"dependency-groups"' in script  # a changed group sets the environment up again


def test_pages_name_an_installation_that_works_before_the_first_release() -> None:
    """The distribution is on no index until the changelog has a release."""
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    if re.search(r"^## \[\d[\d.]*\] - \d{4}-\d\d-\d\d$", changelog, re.MULTILINE):
        pytest.skip("there is a release")
    from_the_index = re.compile(r"pip install .*\bmcp-django-channels(?!\[)(?! *@)")
    sources = [*pages(), *(path for path in (ROOT / "mcp_django").rglob("*.py"))]
    assert [name_of(path) for path in sources if from_the_index.search(path.read_text(encoding="utf-8"))] == []
    for page in ("README.md", "docs/start/installation.md"):
        first = re.search(r"^pip install (.+)$", (ROOT / page).read_text(encoding="utf-8"), re.MULTILINE)
        assert first
        assert first[1] == "path/to/checkout"


def test_no_file_holds_forbidden_text() -> None:
    found = []
    for path in tracked_files():
        try:
            text = path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue  # a picture
        for kind, pattern in FORBIDDEN.items():
            found += [f"{name_of(path)}: {kind}: {match[0]}" for match in pattern.finditer(text)]
    assert not found, "\n".join(found)


def test_scripts_are_executable() -> None:
    scripts = (".ci/run", "scripts/environment", "manage.py")
    assert [script for script in scripts if not os.access(ROOT / script, os.X_OK)] == []


def test_the_navigation_names_each_page_once() -> None:
    named = re.findall(r"^ +- (?:\w[\w ]*: )?([\w/-]+\.md)$", (ROOT / "mkdocs.yml").read_text("utf-8"), re.MULTILINE)
    assert len(named) == len(set(named))
    pages = {page.relative_to(ROOT / "docs").as_posix() for page in (ROOT / "docs").rglob("*.md")}
    assert set(named) - pages == {"changelog.md", "contributing/index.md", "security.md"}
    assert pages <= set(named)
