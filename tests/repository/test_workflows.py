"""Workflows and the compose file: valid, pinned, without secrets, and a tag that matches its release."""

import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
import yaml

from scripts.check_release import find_problems
from tests.repository.pages import ROOT, name_of

WORKFLOWS = sorted((ROOT / ".github/workflows").glob("*.yml"))
CHANGELOG = "# Changelog\n\n## [0.9.0] - 2026-12-01\n\n## [0.8.0] - 2026-01-01\n"


def validate(schema: str, *paths: Path) -> None:
    """Check files against a schema that check-jsonschema ships."""
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", schema, *map(str, paths)]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr


def test_workflows_are_valid_and_have_time_limits() -> None:
    validate("vendor.github-workflows", *WORKFLOWS)
    validate("custom.github-workflows-require-timeout", *WORKFLOWS)


def test_the_compose_file_is_valid_and_starts_two_workers_on_one_database() -> None:
    validate("vendor.compose-spec", ROOT / "compose.yaml")
    services = yaml.safe_load((ROOT / "compose.yaml").read_text(encoding="utf-8"))["services"]
    workers = [services[name] for name in ("worker-1", "worker-2")]
    assert workers[0]["environment"] == workers[1]["environment"]
    assert workers[0]["hostname"] != workers[1]["hostname"]
    published = [port for service in services.values() for port in service.get("ports", ())]
    assert [port for port in published if not port.startswith("127.0.0.1:")] == []
    for worker in workers:
        assert (ROOT / worker["build"]["dockerfile"]).is_file()


def test_files_that_the_image_copies_exist_and_are_not_ignored() -> None:
    dockerfile = (ROOT / "project/Dockerfile").read_text(encoding="utf-8")
    copied = {name for line in re.findall(r"^COPY (.+) \S+$", dockerfile, re.MULTILINE) for name in line.split()}
    included = {
        line[1:]
        for line in (ROOT / "project/Dockerfile.dockerignore").read_text(encoding="utf-8").splitlines()
        if line.startswith("!")
    }
    assert copied == included
    assert [name for name in copied if not (ROOT / name).exists()] == []


def test_actions_are_pinned_to_commits() -> None:
    pinned = re.compile(r"[\w.-]+/[\w.-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+")
    uses = [
        (name_of(path), action)
        for path in WORKFLOWS
        for action in re.findall(r"uses: (.+)", path.read_text(encoding="utf-8"))
    ]
    assert len(uses) > 5
    assert [one for one in uses if not pinned.fullmatch(one[1])] == []


def test_the_release_needs_no_secret_and_only_two_jobs_may_sign() -> None:
    text = (ROOT / ".github/workflows/release.yml").read_text(encoding="utf-8")
    assert "secrets." not in text
    workflow = yaml.safe_load(text)
    assert workflow["permissions"] == {}
    jobs = workflow["jobs"]
    assert [name for name, job in jobs.items() if "id-token" in job["permissions"]] == ["attest", "publish"]
    assert [jobs[name]["needs"] for name in ("check", "attest", "publish")] == ["build", "check", "attest"]
    assert jobs["publish"]["environment"] == "pypi"


def test_the_changelog_has_each_section_and_each_entry_once() -> None:
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    releases = re.split(r"^## ", changelog, flags=re.MULTILINE)[1:]
    for release in releases:
        sections = re.findall(r"^###+ (.+)$", release, re.MULTILINE)
        entries = re.findall(r"^- (.+)$", release, re.MULTILINE)
        assert [name for name, count in Counter(sections).items() if count > 1] == []
        assert [entry for entry, count in Counter(entries).items() if count > 1] == []
    newest = re.findall(r"^### (.+)$", releases[0], re.MULTILINE)
    order = ["Upgrade notes", "Security", "Deprecated", "Removed", "Changed", "Fixed", "Added"]
    assert newest == [name for name in order if name in newest]


def test_a_tag_matches_the_version_and_a_dated_section_of_the_changelog(subtests: pytest.Subtests) -> None:
    assert find_problems("v0.9.0", "0.9.0", CHANGELOG) == []
    for tag, version, changelog, problem in [
        ("v0.9.1", "0.9.0", CHANGELOG, "tag v0.9.0"),
        ("v0.9.1", "0.9.1", CHANGELOG, "add '## [0.9.1] - DATE'"),
        ("v0.9.0", "0.9.0", CHANGELOG.replace("2026-12-01", "unreleased"), "has no date"),
        ("v0.9.0", "0.9.0", "# Changelog\n", "add '## [0.9.0] - DATE'"),
    ]:
        with subtests.test(tag=tag, version=version):
            (found,) = find_problems(tag, version, changelog)
            assert problem in found
