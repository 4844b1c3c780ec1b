"""The bounds of dependencies admit no release with a published vulnerability that advisories.json names."""

import json
import tomllib
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.version import Version

ROOT = Path(__file__).parents[2]
FOUND = json.loads((Path(__file__).parent / "advisories.json").read_text(encoding="utf-8"))
ADVISORIES = FOUND["advisories"]


def list_requirements() -> list[Requirement]:
    """Return the requirements of the package and of its extras."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = [text for texts in project["optional-dependencies"].values() for text in texts]
    return [Requirement(text) for text in (*project["dependencies"], *extras)]


def list_vulnerable_releases(fixed: str) -> list[str]:
    """Return the releases of the series before the first fixed one."""
    version = Version(fixed)
    return [f"{version.major}.{version.minor}.{number}" for number in range(version.micro)]


@pytest.mark.parametrize("advisory", ADVISORIES, ids=lambda advisory: f"{advisory['package']} {advisory['ids'][0]}")
def test_no_vulnerable_release_is_admitted(advisory: dict[str, Any]) -> None:
    requirements = [one for one in list_requirements() if one.name.lower() == advisory["package"].lower()]
    assert requirements
    # All releases of any series before the first fixed one are vulnerable as well.
    limits = [limit for requirement in requirements for limit in requirement.specifier if limit.operator == ">="]
    assert min(Version(limit.version) for limit in limits) >= min(map(Version, advisory["fixed"]))
    admitted = [
        release
        for fixed in advisory["fixed"]
        for release in list_vulnerable_releases(fixed)
        if any(requirement.specifier.contains(release) for requirement in requirements)
    ]
    assert admitted == []


def test_each_dependency_was_searched_for() -> None:
    names = {one.name.lower() for one in list_requirements()} - {"mcp-django-channels"}
    with_advisories = {advisory["package"].lower() for advisory in ADVISORIES}
    assert names == {*with_advisories, *FOUND["searched"]}


def test_missing_facts_of_a_source_are_marked(subtests: pytest.Subtests) -> None:
    for advisory in ADVISORIES:
        with subtests.test(package=advisory["package"], ids=advisory["ids"]):
            assert set(advisory.get("unverified", ())) <= {*advisory["ids"], *advisory["fixed"]}
            assert advisory["source"].startswith("https://")


def test_the_newest_releases_are_admitted() -> None:
    [django] = [one for one in list_requirements() if one.name == "Django"]
    assert all(django.specifier.contains(release) for release in ("5.2.19", "6.0.10", "6.1.3", "6.1.4"))
