"""Skills as the client reads them: verified bytes, refused entries, folders, and several servers."""

import ast
from pathlib import Path
from typing import Any

import pytest

from mcp_django.client import Bridge, CallError, Client, ClientSkill, InvalidAnswer
from mcp_django.client import client as module
from mcp_django.contrib.skills import Skills
from tests.client.script import ERAS, EVERYTHING, Script
from tests.contrib.skills.folders import FILES, FRONTMATTER, REFUNDS_URI, reach, serve, write, write_skill
from tests.repository.pages import ROOT, python_blocks
from tests.server.client import make_server

INNER = {path.removeprefix("refunds/"): data for path, data in FILES.items()}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write(tmp_path / "served")


@pytest.fixture(params=ERAS)
def client(folder: Path, request: pytest.FixtureRequest) -> Client:
    """Build a client of the own server with the skills of a folder; it connects in the test."""
    return Client(reach(serve(Skills(folder, prefix="shop")), request.param), max_retries=0)


async def test_skills_are_listed_and_files_are_verified(client: Client) -> None:
    async with client:
        found = {skill.uri: skill for skill in await client.list_skills()}
        assert set(found) == {REFUNDS_URI, "skill://shop/refunds/deep/inner/SKILL.md"}
        skill = found[REFUNDS_URI]
        assert (skill.name, skill.description) == ("refunds", FRONTMATTER["description"])
        assert skill.frontmatter == FRONTMATTER
        assert {file.path: await skill.read(file.path) for file in skill.files or ()} == INNER
        with pytest.raises(ValueError, match=r"no file '\.\./secret'"):
            await skill.read("../secret")


async def test_a_changed_file_is_refused_until_the_skill_is_got_again(client: Client, folder: Path) -> None:
    async with client:
        skill = await client.get_skill(REFUNDS_URI)
        write(folder, {"refunds/crlf.txt": b"TWO\r\ntwo\r\n"})
        with pytest.raises(InvalidAnswer, match=r"digest of .crlf\.txt"):
            await skill.read("crlf.txt")
        again = await client.get_skill(REFUNDS_URI)
        assert await again.read("crlf.txt") == b"TWO\r\ntwo\r\n"


async def test_an_unknown_skill_is_an_error_of_the_server(client: Client) -> None:
    async with client:
        with pytest.raises(CallError, match="Unknown skill"):
            await client.get_skill("skill://shop/none/SKILL.md")


async def test_a_skill_is_written_to_a_folder_of_its_name(client: Client, tmp_path: Path) -> None:
    async with client:
        skill = await client.get_skill(REFUNDS_URI)
        target = await skill.to_directory(tmp_path / "skills")
        assert target == tmp_path / "skills" / "refunds"
        assert {str(one.relative_to(target)): one.read_bytes() for one in target.rglob("*") if one.is_file()} == INNER
        with pytest.raises(FileExistsError):
            await skill.to_directory(tmp_path / "skills")
        (target / "old.txt").write_text("old")
        await skill.to_directory(tmp_path / "skills", replace=True)
        assert not (target / "old.txt").exists()
        assert [one.name for one in target.parent.iterdir()] == ["refunds"]


async def test_a_symbolic_link_is_never_written_through(client: Client, tmp_path: Path) -> None:
    async with client:
        (tmp_path / "elsewhere").mkdir()
        (tmp_path / "skills").mkdir()
        (tmp_path / "skills" / "refunds").symlink_to(tmp_path / "elsewhere")
        skill = await client.get_skill(REFUNDS_URI)
        with pytest.raises(FileExistsError):
            await skill.to_directory(tmp_path / "skills", replace=True)
        assert list((tmp_path / "elsewhere").iterdir()) == []


async def test_a_server_without_skills_has_none() -> None:
    async with Client(reach(make_server(), "stateless"), max_retries=0) as client:
        assert await client.list_skills() == []
        with pytest.raises(CallError, match="has no skills"):
            await client.get_skill(REFUNDS_URI)
        assert client.capabilities.extensions is None


ENTRY: dict[str, Any] = {
    "uri": "skill://a/one/SKILL.md",
    "frontmatter": {"name": "one", "description": "One."},
    "resources": "dynamic",
}
FILE = {"uri": "skill://a/one/SKILL.md", "digest": "sha256:" + "0" * 64, "size": 1}


def _with_file(**changes: Any) -> dict[str, Any]:
    return {**ENTRY, "resources": [FILE, {**FILE, **changes}]}


@pytest.mark.parametrize(
    "entry",
    [
        "text",
        {**ENTRY, "resources": None},
        {**ENTRY, "resources": []},
        {**ENTRY, "frontmatter": {"name": "two", "description": "One."}},
        {**ENTRY, "frontmatter": {"name": "one"}},
        {**ENTRY, "uri": "skill://a/../SKILL.md", "frontmatter": {"name": "..", "description": "x"}},
        _with_file(uri="skill://a/two/x.txt"),
        _with_file(uri="skill://a/one/../x.txt"),
        _with_file(uri="skill://a/one/..%2Fx.txt"),
        _with_file(uri="skill://a/one/%2e%2e/x.txt"),
        _with_file(uri="skill://a/one/a%5C..%5Cx.txt"),
        _with_file(uri="skill://a/one/x.txt", digest="sha256:0"),
        _with_file(uri="skill://a/one/x.txt", size=-1),
        _with_file(uri="skill://a/one/x.txt", size=17 * 1024 * 1024),
        {**ENTRY, "resources": [FILE, *({**FILE, "uri": f"skill://a/one/{n}"} for n in range(512))]},
    ],
)
async def test_invalid_entries_are_left_out_and_refused(entry: Any, caplog: pytest.LogCaptureFixture) -> None:
    script = Script(
        "stateless",
        {**EVERYTHING, "extensions": {"io.modelcontextprotocol/skills": {}}},
        skills_list={"skills": [entry, {**ENTRY, "uri": "skill://b/one/SKILL.md"}, ENTRY]},
        skills_get={"skill": entry},
    )
    async with Client(script, max_retries=0) as client:
        listed = await client.list_skills()
        assert [skill.uri for skill in listed] == ["skill://b/one/SKILL.md", "skill://a/one/SKILL.md"]
        assert "Invalid skill" in caplog.text
        with pytest.raises(InvalidAnswer):
            await client.get_skill("skill://a/one/SKILL.md")


HOSTILE_VALUES = ["0x" + "f" * 4000, "9" * 5000, '"\\ud800"', "{<<: {a: b}}"]
"""Values of a frontmatter that JSON cannot express."""


async def _read(contents: Any) -> bytes:
    script = Script(
        "stateless",
        {**EVERYTHING, "extensions": {"io.modelcontextprotocol/skills": {}}},
        skills_get={"skill": ENTRY},
        resources_read={"contents": contents},
    )
    async with Client(script, max_retries=0) as client:
        return await (await client.get_skill(ENTRY["uri"])).read()


async def test_the_frontmatter_of_a_dynamic_skill_is_verified() -> None:
    text = '---\nname: one\ndescription: "One."\n---\nText'
    assert await _read([{"uri": ENTRY["uri"], "text": text}]) == text.encode()
    for contents in (
        [{"uri": ENTRY["uri"], "text": text.replace("One", "Two")}],
        *([{"uri": ENTRY["uri"], "text": f"---\nx: {value}\n---\n"}] for value in HOSTILE_VALUES),
        [{"uri": "skill://a/two/SKILL.md", "text": text}],
        [{"uri": ENTRY["uri"], "text": text}] * 2,
        [{"uri": ENTRY["uri"], "blob": "no base64"}],
        [],
    ):
        with pytest.raises(InvalidAnswer):
            await _read(contents)


def test_the_blocking_client_reads_skills(folder: Path, tmp_path: Path) -> None:
    with Client(reach(serve(Skills(folder, prefix="shop")), "stateless"), max_retries=0).blocking() as client:
        assert len(client.list_skills()) == 2
        skill = client.get_skill(REFUNDS_URI)
        assert skill.skill.name == "refunds"
        assert skill.read("crlf.txt") == INNER["crlf.txt"]
        assert skill.to_directory(tmp_path).name == "refunds"


async def test_a_bridge_has_the_skills_of_each_server(folder: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    write_skill(other, "refunds", "Other")
    servers = {
        "a": Client(reach(serve(Skills(folder, prefix="shop")), "stateless"), max_retries=0),
        "b": Client(reach(serve(Skills(other, prefix="shop")), "handshake"), max_retries=0),
        "c": Client(reach(make_server(), "stateless"), max_retries=0),
    }
    async with Bridge(servers) as bridge:
        skills = await bridge.list_skills()
        assert {alias: len(found) for alias, found in skills.items()} == {"a": 2, "b": 1, "c": 0}
        (mine,) = skills["b"]
        assert isinstance(mine, ClientSkill)
        assert mine.uri == REFUNDS_URI
        assert b"Other" in await mine.read()


async def test_the_page_is_run_as_it_is_written(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    made = module.Client.__init__
    script = reach(serve(Skills(folder, prefix="shop")), "stateless")
    monkeypatch.setattr(module.Client, "__init__", lambda self, target, **options: made(self, script, **options))
    (block,) = python_blocks(ROOT / "docs" / "use-servers" / "skills.md")
    names: dict[str, Any] = {}
    await eval(compile(block, "skills.md", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT), names)
    assert names["instructions"].startswith("---\nname: refunds")
    assert names["folder"].joinpath("policy.md").read_bytes() == names["policy"] == INNER["policy.md"]
