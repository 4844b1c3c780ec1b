"""The methods of the extension, in both eras: lists, entries, files and directories."""

from pathlib import Path
from typing import Any

import pytest

from mcp_django import Server
from mcp_django.contrib.skills import Skills, SkillsExtension
from mcp_django.protocol.errors import InvalidParams, MethodNotFound, ResourceNotFound
from mcp_django.protocol.revisions import REVISIONS
from mcp_django.providers import Mount
from tests.contrib.skills.folders import (
    FILES,
    FRONTMATTER,
    REFUNDS_URI,
    connect,
    list_entries,
    serve,
    verify,
    write,
    write_skill,
)
from tests.server.client import HANDSHAKE, STATELESS, PipelineClient, make_principal, make_server

pytestmark = pytest.mark.parametrize("version", [STATELESS, HANDSHAKE])
UNKNOWN = ["skill://shop/refunds", "skill://shop/refunds/policy.md", "skill://shop/none/SKILL.md", "", "x" * 9000]


async def test_the_capability_is_declared_with_resources(tmp_path: Path, version: str) -> None:
    client = connect(write(tmp_path), version=version)
    capabilities = client.server.capabilities(REVISIONS[version], streams=True)
    assert capabilities["extensions"] == {"io.modelcontextprotocol/skills": {"directoryRead": True}}
    assert "resources" in capabilities


async def test_entries_are_complete_and_files_are_exact(tmp_path: Path, version: str) -> None:
    client = connect(write(tmp_path), version=version)
    entries = await list_entries(client)
    assert set(entries) == {REFUNDS_URI, "skill://shop/refunds/deep/inner/SKILL.md"}
    assert entries[REFUNDS_URI]["frontmatter"] == FRONTMATTER
    files = await verify(client, entries[REFUNDS_URI])
    quoted = {f"skill://shop/{path.replace(' ', '%20')}": data for path, data in FILES.items()}
    assert files == quoted
    assert set(await verify(client, entries["skill://shop/refunds/deep/inner/SKILL.md"])) == {
        "skill://shop/refunds/deep/inner/SKILL.md"
    }


async def test_a_change_inside_changes_the_outer_skill(tmp_path: Path, version: str) -> None:
    client = connect(write(tmp_path), version=version)
    before = await list_entries(client)
    write(tmp_path, {"refunds/deep/inner/extra.txt": b"x"})
    after = await list_entries(client)
    assert all(before[uri] != after[uri] for uri in before)


async def test_lists_are_paged_by_entries(tmp_path: Path, version: str) -> None:
    for number in range(120):
        write_skill(tmp_path, f"skill-{number:03}")
    client = connect(tmp_path, version=version)
    page = await client.request("skills/list")
    assert len(page["skills"]) == 50
    assert page["ttlMs"] >= 0
    assert page["cacheScope"] == "public"
    assert page.get("resultType") == ("complete" if version == STATELESS else None)
    assert len(await list_entries(client)) == 120
    for cursor in ["nonsense", 7]:
        with pytest.raises(InvalidParams):
            await client.request("skills/list", {"cursor": cursor})


async def test_an_entry_is_served_by_its_uri(tmp_path: Path, version: str) -> None:
    client = connect(write(tmp_path), version=version)
    got = await client.request("skills/get", {"uri": REFUNDS_URI})
    assert got["skill"] == (await list_entries(client))[REFUNDS_URI]
    assert {"ttlMs", "cacheScope"} <= set(got)
    assert "nextCursor" not in got
    for uri in UNKNOWN:
        with pytest.raises(InvalidParams):
            await client.request("skills/get", {"uri": uri})
    for params in [{}, {"uri": 1}]:
        with pytest.raises(InvalidParams):
            await client.request("skills/get", params)


async def test_directories_have_their_direct_children(tmp_path: Path, version: str) -> None:
    client = connect(write(tmp_path), version=version)
    found = await client.request("resources/directory/read", {"uri": "skill://shop/refunds"})
    assert {child["name"]: child["mimeType"] for child in found["resources"]} == {
        "refunds": "text/markdown",
        "crlf.txt": "text/plain",
        "deep": "inode/directory",
        "latin1.txt": "text/plain",
        "logo.png": "image/png",
        "policy.md": "text/markdown",
        "scripts": "inode/directory",
    }
    assert all(not child["uri"].endswith("/") for child in found["resources"])
    assert {"ttlMs", "cacheScope"} <= set(found)
    (script,) = (await client.request("resources/directory/read", {"uri": "skill://shop/refunds/scripts"}))["resources"]
    assert script["uri"] == "skill://shop/refunds/scripts/refund%20one.py"
    inner = await client.request("resources/directory/read", {"uri": "skill://shop/refunds/deep"})
    assert [child["uri"] for child in inner["resources"]] == ["skill://shop/refunds/deep/inner"]
    for uri in [
        REFUNDS_URI,
        "skill://shop/refunds/none",
        "skill://shop/refund",
        "skill://other",
        "",
        "skill://shop/refunds/../refunds",
    ]:
        with pytest.raises(InvalidParams):
            await client.request("resources/directory/read", {"uri": uri})


async def test_directories_are_paged(tmp_path: Path, version: str) -> None:
    client = PipelineClient(serve(Skills(write(tmp_path), prefix="shop"), options={"page_size": 3}), version=version)
    names: list[str] = []
    params: dict[str, Any] = {"uri": "skill://shop/refunds"}
    for _ in range(3):
        page = await client.request("resources/directory/read", params)
        names += [child["name"] for child in page["resources"]]
        params["cursor"] = page.get("nextCursor")
    assert params["cursor"] is None
    assert len(names) == len(set(names)) == 7


async def test_a_skill_file_is_a_listed_resource_with_its_description(tmp_path: Path, version: str) -> None:
    client = connect(write(tmp_path), version=version)
    listed = {entry["uri"]: entry for entry in (await client.request("resources/list"))["resources"]}
    assert set(listed) == {REFUNDS_URI, "skill://shop/refunds/deep/inner/SKILL.md"}
    assert listed[REFUNDS_URI]["name"] == "refunds"
    assert listed[REFUNDS_URI]["description"] == FRONTMATTER["description"]
    assert listed[REFUNDS_URI]["mimeType"] == "text/markdown"
    every = connect(tmp_path, version=version, list_files=True)
    assert len((await every.request("resources/list"))["resources"]) == len(FILES)


@pytest.mark.parametrize(
    "uri",
    ["skill://shop/refunds/none.txt", "skill://shop/refunds/..%2f..%2fx", "skill://refunds/SKILL.md", "skill://shop/"],
)
async def test_unknown_files_are_not_found(tmp_path: Path, version: str, uri: str) -> None:
    with pytest.raises(ResourceNotFound):
        await connect(write(tmp_path), version=version).request("resources/read", {"uri": uri})


async def test_skills_are_absent_without_permission(tmp_path: Path, version: str) -> None:
    server = serve(Skills(write(tmp_path), prefix="shop", permission="shop.view_order"))
    stranger = PipelineClient(server, make_principal(), version)
    assert await list_entries(stranger) == {}
    assert (await stranger.request("skills/list"))["cacheScope"] == "private"
    for name, uri in [
        ("skills/get", REFUNDS_URI),
        ("resources/directory/read", "skill://shop/refunds"),
        ("resources/read", "skill://shop/refunds/policy.md"),
    ]:
        with pytest.raises(InvalidParams if name != "resources/read" else ResourceNotFound):
            await stranger.request(name, {"uri": uri})

    clerk = PipelineClient(server, make_principal("shop.view_order"), version)
    assert len(await list_entries(clerk)) == 2
    assert (await clerk.request("skills/get", {"uri": REFUNDS_URI}))["cacheScope"] == "private"


async def test_a_mount_rewrites_entry_and_manifest_alike(tmp_path: Path, version: str) -> None:
    shop = Server("Shop", providers=[Skills(write(tmp_path), prefix="shop")])
    mount = Mount(shop, prefix="m", uri_prefix="m", permission="shop.view_order")
    host = make_server(mounts=[mount], extensions=[SkillsExtension()])
    client = PipelineClient(host, make_principal("shop.view_order"), version)
    entries = await list_entries(client)
    assert set(entries) == {f"m+{REFUNDS_URI}", "m+skill://shop/refunds/deep/inner/SKILL.md"}
    assert len(await verify(client, entries[f"m+{REFUNDS_URI}"])) == len(FILES)
    found = await client.request("resources/directory/read", {"uri": "m+skill://shop/refunds/scripts"})
    assert found["resources"][0]["uri"] == "m+skill://shop/refunds/scripts/refund%20one.py"
    assert await list_entries(PipelineClient(host, make_principal(), version)) == {}


async def test_a_server_without_the_extension_has_no_methods(tmp_path: Path, version: str) -> None:
    client = PipelineClient(make_server(providers=[Skills(write(tmp_path))]), version=version)
    with pytest.raises(MethodNotFound):
        await client.request("skills/list")
