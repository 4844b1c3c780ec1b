"""`mcp_skills`: skills listed, verified, and added from folders and archives."""

import json
import stat
import zipfile
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.apps import apps
from django.core.management import CommandError, call_command

from mcp_django.contrib.skills.models import StoredSkill
from mcp_django.protocol.skills import MAX_SKILL_BYTES
from tests.contrib.skills.folders import FILES, REFUNDS_URI, write, write_skill

REFUNDS = {path.removeprefix("refunds/"): data for path, data in FILES.items()}


@pytest.fixture
def app_directory(tmp_path: Path, settings: Any, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of the app `shop`, whose skills a server has."""
    directory = tmp_path / "app"
    directory.mkdir()
    monkeypatch.setattr(apps.get_app_config("shop"), "path", str(directory))
    served = {
        "EXTENSIONS": ["mcp_django.contrib.skills.SkillsExtension"],
        "PROVIDERS": ["mcp_django.contrib.skills.AppSkills"],
        "STORED": False,
    }
    settings.MCP = {"AUTH": "none", "SERVERS": {"default": served, "plain": {"STORED": False}}}
    return directory


def run(*arguments: str) -> tuple[str, str]:
    """Run the command, and return its two outputs."""
    out, err = StringIO(), StringIO()
    call_command("mcp_skills", *arguments, stdout=out, stderr=err)
    return out.getvalue(), err.getvalue()


def zip_files(path: Path, files: dict[str, bytes]) -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in files.items():
            archive.writestr(name, data)
    return path


def test_skills_are_listed_and_verified(app_directory: Path) -> None:
    write(app_directory / "skills")
    out, _ = run("list")
    assert REFUNDS_URI in out
    assert "7 files" in out
    (entry, _) = json.loads(run("list", "--json", "--server", "default")[0])["default"]
    assert entry["uri"] in (REFUNDS_URI, "skill://shop/refunds/deep/inner/SKILL.md")
    out, err = run("verify")
    assert f"default: {REFUNDS_URI}: 7 files" in out
    assert err == ""


def test_a_folder_that_is_not_served_fails_the_verification(app_directory: Path, capsys: Any) -> None:
    write_skill(app_directory / "skills", "Bad")
    with pytest.raises(CommandError, match="1 problems found"):
        run("verify")


def test_a_server_without_the_extension_is_named(app_directory: Path) -> None:
    with pytest.raises(CommandError, match="No server has the extension"):
        run("list", "--server", "plain")


@pytest.mark.parametrize("form", ["folder", "archive", "archive with a folder"])
def test_a_skill_is_added_with_exact_bytes(app_directory: Path, tmp_path: Path, form: str) -> None:
    if form == "folder":
        source = write(tmp_path, {**FILES, "refunds/.env": b"SECRET=1"}) / "refunds"
    else:
        source = zip_files(tmp_path / "one.zip", REFUNDS if form == "archive" else FILES)
    out, _ = run("add", str(source), "--app", "shop")
    assert "Added" in out
    added = app_directory / "skills" / "refunds"
    found = {str(file.relative_to(added)): file.read_bytes() for file in added.rglob("*") if file.is_file()}
    assert found == REFUNDS
    assert [folder.name for folder in added.parent.iterdir()] == ["refunds"]
    assert run("verify")[1] == ""

    with pytest.raises(CommandError, match="use --replace"):
        run("add", str(source), "--app", "shop")
    write_skill(tmp_path / "new", "refunds", "New")
    run("add", str(tmp_path / "new" / "refunds"), "--app", "shop", "--replace")
    assert [file.name for file in added.iterdir()] == ["SKILL.md"]


SKILL = b"---\nname: one\ndescription: One.\n---\n"


@pytest.mark.parametrize(
    ("files", "reason"),
    [
        ({"a.txt": b"x"}, "no SKILL.md"),
        ({"SKILL.md": SKILL, "../evil.txt": b"x"}, "invalid or repeated path"),
        ({"SKILL.md": SKILL, "/evil.txt": b"x"}, "invalid or repeated path"),
        ({"SKILL.md": SKILL, "a\\..\\evil.txt": b"x"}, "invalid or repeated path"),
        ({"SKILL.md": b"---\nname: ../one\ndescription: One.\n---\n"}, "name '../one' must have"),
        ({"SKILL.md": b"---\nname: one\nx: 0x" + b"f" * 4000 + b"\n---\n"}, "not a number of JSON"),
        ({"SKILL.md": b"---\nname: one\nx: " + b"9" * 5000 + b"\n---\n"}, "not a number of JSON"),
        ({"SKILL.md": b"---\nname: one\n---\n"}, "description must be a text"),
        ({"SKILL.md": SKILL, "big.bin": b"\0" * (MAX_SKILL_BYTES + 1)}, "larger than"),
    ],
)
def test_an_invalid_archive_writes_nothing(
    app_directory: Path, tmp_path: Path, files: dict[str, bytes], reason: str
) -> None:
    source = zip_files(tmp_path / "one.zip", files)
    with pytest.raises(CommandError, match=reason):
        run("add", str(source), "--app", "shop")
    assert list(app_directory.iterdir()) == []
    assert sorted(path.name for path in tmp_path.iterdir()) == ["app", "one.zip"]


def test_symbolic_links_are_refused(app_directory: Path, tmp_path: Path) -> None:
    link = zipfile.ZipInfo("secret.txt")
    link.external_attr = (stat.S_IFLNK | 0o777) << 16
    with zipfile.ZipFile(tmp_path / "one.zip", "w") as archive:
        archive.writestr("SKILL.md", SKILL)
        archive.writestr(link, "/etc/passwd")
    folder = write(tmp_path / "folder", {"SKILL.md": SKILL})
    (folder / "secret.txt").symlink_to("/etc/passwd")
    for source in (tmp_path / "one.zip", folder):
        with pytest.raises(CommandError, match="symbolic link"):
            run("add", str(source), "--app", "shop")
    assert list(app_directory.iterdir()) == []


def test_a_folder_is_verified_before_it_is_served(app_directory: Path, tmp_path: Path) -> None:
    source = write(tmp_path, {"one/SKILL.md": SKILL.replace(b"---\n", b"---\nlicense: 'yes'\nsince: 2026-01-01\n", 1)})
    out, err = run("verify", str(source / "one"))
    assert "one: valid, 1 files" in out
    assert "2026-01-01" in err
    with pytest.raises(CommandError, match="not a readable ZIP archive"):
        run("verify", str(source / "one" / "SKILL.md"))
    with pytest.raises(CommandError, match="cannot be read"):
        run("verify", str(tmp_path / "none"))
    for arguments in (["add"], ["add", str(source / "one")]):
        with pytest.raises(CommandError, match="add requires"):
            run(*arguments)
    with pytest.raises(CommandError, match="Unknown app"):
        run("add", str(source / "one"), "--app", "none")


@pytest.mark.django_db
def test_a_skill_is_stored_as_a_draft_and_then_as_a_version(app_directory: Path, tmp_path: Path) -> None:
    source = write(tmp_path) / "refunds"
    out, _ = run("add", str(source), "--stored", "shop/refunds")
    assert "a draft" in out
    row = StoredSkill.objects.get()
    assert not row.enabled
    assert row.build_package().files == REFUNDS
    with pytest.raises(CommandError, match="use --replace to add a version"):
        run("add", str(source), "--stored", "shop/refunds")
    write(tmp_path, {"refunds/crlf.txt": b"new"})
    run("add", str(source), "--stored", "shop/refunds", "--replace")
    assert [version.number for version in row.versions.all()] == [2, 1]  # type: ignore[attr-defined]
    with pytest.raises(CommandError, match="must be the name in SKILL"):
        run("add", str(source), "--stored", "shop/other")
