"""Trees of skill folders: served files, files that are never served, and changes."""

import logging
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from django.core.files.base import ContentFile
from django.core.files.storage import InMemoryStorage
from hypothesis import given, settings
from hypothesis import strategies as st

from mcp_django.contrib.skills import AppSkills, Skills
from mcp_django.contrib.skills.packages import MemoryFiles
from mcp_django.contrib.skills.trees import SkillTree
from mcp_django.protocol import jsonrpc
from mcp_django.protocol.skills import MAX_SKILL_BYTES, MAX_SKILL_FILES, compute_digest
from mcp_django.providers.files.patterns import ContentTooLarge
from mcp_django.providers.files.sandbox import DirectorySandbox
from mcp_django.schema import DeclarationError
from tests.contrib.skills.folders import FILES, FRONTMATTER, list_entries, serve, verify, write, write_skill
from tests.server.client import PipelineClient


def tree(root: Path, **options: Any) -> SkillTree:
    return SkillTree(DirectorySandbox(root), label="shop", **options)


def paths(found: SkillTree, folder: str = "refunds") -> set[str]:
    return {file.path for file in found.load().skills[folder].files or ()}


def test_a_manifest_has_each_file_of_the_folder(tmp_path: Path) -> None:
    manifest = tree(write(tmp_path)).load().skills["refunds"]
    assert manifest.frontmatter == FRONTMATTER
    assert {file.path: (file.digest, file.size) for file in manifest.files or ()} == {
        path.removeprefix("refunds/"): (compute_digest(data), len(data)) for path, data in FILES.items()
    }


def test_hidden_files_caches_backups_and_links_are_never_served(tmp_path: Path) -> None:
    write(tmp_path)
    secrets = [
        ".env",
        ".git/config",
        "__pycache__/x.pyc",
        "x.pyc",
        "a.md~",
        "a.bak",
        "A.BAK",
        ".a.swp",
        "#a#",
        "a.orig",
    ]
    write(tmp_path, {f"refunds/{name}": b"secret" for name in secrets})
    (tmp_path / "outside.txt").write_text("secret")
    (tmp_path / "refunds" / "link.txt").symlink_to(tmp_path / "outside.txt")
    (tmp_path / "refunds" / "linked").symlink_to(tmp_path, target_is_directory=True)
    found = tree(tmp_path)
    assert paths(found) == {path.removeprefix("refunds/") for path in FILES}
    for name in [*secrets, "link.txt", "linked/outside.txt", "../outside.txt", "missing"]:
        assert found.read(f"refunds/{name}") is None
    assert found.read("outside.txt") is None


@pytest.mark.parametrize(
    ("files", "reason"),
    [
        ({"a/SKILL.md": b"no frontmatter"}, "must begin with a frontmatter"),
        ({"a/SKILL.md": b"---\nname: b\ndescription: d\n---\n"}, "must be the name of its folder, 'a'"),
        ({"A/SKILL.md": b"---\nname: A\ndescription: d\n---\n"}, "lowercase"),
        ({"a--b/SKILL.md": b"---\nname: a--b\ndescription: d\n---\n"}, "single hyphens"),
        ({"a/SKILL.md": b"---\nname: a\n---\n"}, "description"),
        ({"a/SKILL.md": b"---\nname: a\ndescription: " + b"d" * 1025 + b"\n---\n"}, "1024"),
        ({"a/SKILL.md": b"---\nname: a\ndescription: d\nmetadata: {n: 1}\n---\n"}, "metadata must map"),
        (
            {"a/SKILL.md": b"---\nname: a\ndescription: d\nmetadata: {io.modelcontextprotocol/x: y}\n---\n"},
            "reserved prefix",
        ),
        ({"a/SKILL.md": b"---\nname: a\ndescription: d\ncompatibility: []\n---\n"}, "compatibility"),
        (
            {"a/SKILL.md": b"---\nname: a\ndescription: d\n---\n"} | {f"a/{n}": b"" for n in range(MAX_SKILL_FILES)},
            "512 files",
        ),
        (
            {"a/SKILL.md": b"---\nname: a\ndescription: d\n---\n", "a/big": b"x" * MAX_SKILL_BYTES},
            "16 MiB",
        ),
    ],
)
def test_a_folder_that_breaks_a_rule_is_reported_and_not_served(
    tmp_path: Path, files: dict[str, bytes], reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    write_skill(tmp_path, "good")
    found = tree(write(tmp_path, files))
    with caplog.at_level(logging.WARNING, "mcp_django.skills"):
        assert list(found.load().skills) == ["good"]
        found.load()
    assert reason in found.load().problems[0].text
    assert [record.name for record in caplog.records].count("mcp_django.skills") == 1
    (error,) = Skills(tmp_path).check()
    assert error.id == "mcp_skills.E001"
    assert reason in error.msg


@pytest.mark.parametrize("answer", [None, ContentTooLarge(1), OSError("the disk is broken"), ZeroDivisionError()])
def test_a_file_that_cannot_be_read_takes_its_own_skill_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answer: Exception | None
) -> None:
    for name in ("bad", "good"):
        write_skill(tmp_path, name)
    files = DirectorySandbox(tmp_path)
    read = files.read

    def fail(parts: Sequence[str], max_bytes: int) -> bytes | None:
        if parts[0] != "bad":
            return read(parts, max_bytes)
        if answer is not None:
            raise answer
        return None

    monkeypatch.setattr(files, "read", fail)
    snapshot = SkillTree(files, label="shop").load()
    assert list(snapshot.skills) == ["good"]
    assert [problem.path for problem in snapshot.problems] == ["bad"]


FRAGMENTS = st.sampled_from(
    [
        *("x", ": ", "\n", "  ", "- ", "[", "]", "{", "}", '"', "'", "|", ">", "? ", "#", "~", "%", "@", "---", "é"),
        *("\\ud800", "<<", "&a", "*a", "!!int", "0x", "0o", "+", "1e", ".inf", "\0", "\x85", "9" * 5000, "f" * 400),
    ]
)


@settings(max_examples=60, deadline=None)
@given(lines=st.lists(FRAGMENTS, max_size=12).map("".join), tail=st.binary(max_size=20))
def test_any_frontmatter_leaves_the_other_skills_served(lines: str, tail: bytes) -> None:
    good = {name: f"---\nname: {name}\ndescription: d\n---\n".encode() for name in ("a", "z")}
    bad = b"---\nname: bad\ndescription: d\n" + lines.encode("utf-8", "replace") + b"\n---\n" + tail
    files = MemoryFiles({f"{name}/SKILL.md": data for name, data in [*good.items(), ("bad", bad)]})
    snapshot = SkillTree(files, label="shop").load()
    assert set(snapshot.skills) >= {"a", "z"}
    for manifest in snapshot.skills.values():
        jsonrpc.dumps(dict(manifest.frontmatter)).decode()
    assert ("bad" in snapshot.skills) != bool(snapshot.problems)


def test_a_replaced_file_is_seen_at_the_next_use(tmp_path: Path) -> None:
    """Within the precision of the clock, with the same size: only its bytes differ."""
    write_skill(tmp_path, "a", "one")
    target = tmp_path / "a" / "SKILL.md"
    found = tree(tmp_path)
    before, stamp = found.load(), target.stat().st_mtime_ns
    assert found.load() is before
    write_skill(tmp_path, "a", "two")
    os.utime(target, ns=(stamp, stamp))
    assert found.load().skills["a"].files[0].digest == compute_digest(target.read_bytes())  # type: ignore[index]


def test_a_replacement_that_keeps_an_old_time_is_seen_after_its_first_read(tmp_path: Path) -> None:
    write_skill(tmp_path, "a", "one")
    target = tmp_path / "a" / "SKILL.md"
    os.utime(target, (1, 1))
    found = tree(tmp_path)
    old = found.load()
    write_skill(tmp_path, "a", "two")
    os.utime(target, (1, 1))
    assert found.load() is old
    assert found.read("a/SKILL.md") == target.read_bytes()
    assert found.load().skills["a"].files[0].digest == compute_digest(target.read_bytes())  # type: ignore[index]


def test_a_file_that_changes_during_a_build_leaves_no_mix(tmp_path: Path) -> None:
    write(tmp_path, {"a/SKILL.md": b"---\nname: a\ndescription: d\n---\n", "a/one": b"1", "a/two": b"1"})

    class Changing(DirectorySandbox):
        def read(self, parts: Any, max_bytes: int) -> bytes | None:
            data = super().read(parts, max_bytes)
            if parts[-1] == "two" and data == b"1":
                write(tmp_path, {"a/one": b"22", "a/two": b"22"})
            return data

    files = SkillTree(Changing(tmp_path), label="shop").load().skills["a"].files or ()
    assert {file.path: file.size for file in files if file.path != "SKILL.md"} == {"one": 2, "two": 2}


async def test_two_workers_agree_after_a_replacement(tmp_path: Path) -> None:
    write(tmp_path)
    one, two = (PipelineClient(serve(Skills(tmp_path, prefix="shop"))) for _ in range(2))
    assert await list_entries(one) == await list_entries(two)
    write(tmp_path, {"refunds/policy.md": b"new"})
    (tmp_path / "refunds" / "crlf.txt").unlink()
    entries = await list_entries(two)
    assert await list_entries(one) == entries
    for entry in entries.values():
        await verify(one, entry)


async def test_a_storage_is_listed_again_after_its_seconds() -> None:
    storage = InMemoryStorage()
    for path, data in FILES.items():
        storage.save(f"site/{path}", ContentFile(data))
    client = PipelineClient(serve(Skills("site", storage=storage, prefix="shop", refresh=0)))
    entries = await list_entries(client)
    assert await verify(client, entries["skill://shop/refunds/SKILL.md"])
    storage.delete("site/refunds/policy.md")
    storage.save("site/refunds/policy.md", ContentFile(b"new"))
    changed = await list_entries(client)
    assert changed != entries
    assert await verify(client, changed["skill://shop/refunds/SKILL.md"])


def test_a_storage_is_not_listed_before(tmp_path: Path) -> None:
    now = [0.0]
    found = tree(tmp_path, refresh=60, get_time=lambda: now[0])
    assert not found.load().skills
    write_skill(tmp_path, "a")
    assert not found.load().skills
    now[0] = 60.0
    assert list(found.load().skills) == ["a"]


async def test_apps_have_their_label_as_prefix(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from django.apps import apps

    monkeypatch.setattr(apps.get_app_config("shop"), "path", str(tmp_path))
    write_skill(tmp_path / "skills", "refunds")
    assert list(await list_entries(PipelineClient(serve(AppSkills())))) == ["skill://shop/refunds/SKILL.md"]
    assert list(await list_entries(PipelineClient(serve(AppSkills(["library"]))))) == []
    with pytest.raises(DeclarationError, match="labels of installed apps"):
        AppSkills(["unknown"])


@pytest.mark.parametrize(
    "options",
    [
        {"prefix": "../x"},
        {"prefix": "a//b"},
        {"directory": ""},
        {"scopes": "read"},
        {"storage": "x", "directory": ".."},
    ],
)
def test_invalid_options_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(DeclarationError):
        Skills(**({"directory": "skills"} | options))


def test_ambiguous_values_and_equal_names_are_warned_of(tmp_path: Path) -> None:
    write(tmp_path)
    write_skill(tmp_path / "other", "refunds")
    assert {message.id for message in Skills(tmp_path).check()} == {"mcp_skills.W001", "mcp_skills.W002"}
