"""Skills of a remote server: entries with local URIs, exact bytes, changes, permissions and hostile servers."""

from pathlib import Path
from typing import Any

import pytest

from mcp_django import Server
from mcp_django.contrib.proxies import Proxy
from mcp_django.contrib.proxies.connections.targets import TargetSource
from mcp_django.contrib.skills import Skills
from mcp_django.protocol.errors import InvalidParams, ResourceNotFound
from mcp_django.protocol.skills import SKILLS_IDENTIFIER, compute_digest
from mcp_django.providers import Mount
from tests.client.script import ERAS, EVERYTHING, Script
from tests.contrib.skills.folders import FILES, FRONTMATTER, list_entries, reach, serve, verify, write
from tests.server.client import HANDSHAKE, STATELESS, PipelineClient, make_principal

INNER = {path.removeprefix("refunds/"): data for path, data in FILES.items()}


def proxy_of(target: Any, **options: Any) -> Proxy:
    # Without requests and log messages of the remote server, one connection is enough.
    options = {"permission": "any", "prefix": "r", "client_features": [], "logs": False, **options}
    return Proxy(TargetSource("r", target, max_retries=0), **options)


def host_of(folder: Path, era: str, **options: Any) -> Server:
    """A server whose skills are those of another server."""
    return serve(proxy_of(reach(serve(Skills(folder, prefix="shop")), era), **options))


@pytest.mark.parametrize("version", [STATELESS, HANDSHAKE])
@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize(("uri_prefix", "root"), [(None, "skill://shop"), ("far", "far+skill://shop")])
async def test_skills_are_passed_with_exact_bytes(
    tmp_path: Path, version: str, era: str, uri_prefix: str | None, root: str
) -> None:
    client = PipelineClient(host_of(write(tmp_path), era, uri_prefix=uri_prefix), version=version)
    entries = await list_entries(client)
    assert set(entries) == {f"{root}/refunds/SKILL.md", f"{root}/refunds/deep/inner/SKILL.md"}
    entry = entries[f"{root}/refunds/SKILL.md"]
    assert entry["frontmatter"] == FRONTMATTER
    files = await verify(client, entry)
    assert files == {f"{root}/refunds/{path.replace(' ', '%20')}": data for path, data in INNER.items()}
    got = await client.request("skills/get", {"uri": entry["uri"]})
    assert got["skill"] == entry
    assert got["cacheScope"] == "private"
    listed = await client.request("resources/directory/read", {"uri": f"{root}/refunds"})
    assert len(listed["resources"]) == 7
    with pytest.raises(ResourceNotFound):
        await client.request("resources/read", {"uri": f"{root}/refunds/none.txt"})


async def test_a_mount_of_a_proxy_passes_them_too(tmp_path: Path) -> None:
    inner = Server("inner", providers=[proxy_of(reach(serve(Skills(write(tmp_path), prefix="shop")), "stateless"))])
    client = PipelineClient(serve(mounts=[Mount(inner, prefix="in", uri_prefix="in")]))
    entries = await list_entries(client)
    assert set(entries) == {"in+skill://shop/refunds/SKILL.md", "in+skill://shop/refunds/deep/inner/SKILL.md"}
    assert len(await verify(client, entries["in+skill://shop/refunds/SKILL.md"])) == 7


async def test_a_changed_file_never_leaves_a_mix(tmp_path: Path) -> None:
    client = PipelineClient(host_of(write(tmp_path), "stateless"))
    entry = (await list_entries(client))["skill://shop/refunds/SKILL.md"]
    write(tmp_path, {"refunds/crlf.txt": b"changed"})
    [content] = (await client.request("resources/read", {"uri": "skill://shop/refunds/crlf.txt"}))["contents"]
    assert content["text"] == "changed"
    after = (await client.request("skills/get", {"uri": entry["uri"]}))["skill"]
    assert after != entry
    assert (await verify(client, after))["skill://shop/refunds/crlf.txt"] == b"changed"


async def test_the_permission_is_that_of_the_proxy(tmp_path: Path) -> None:
    server = host_of(write(tmp_path), "stateless", permission="shop.view_order")
    stranger, clerk = (PipelineClient(server, principal) for principal in (make_principal(), _clerk()))
    assert await list_entries(stranger) == {}
    assert len(await list_entries(clerk)) == 2
    for method, uri in [
        ("skills/get", "skill://shop/refunds/SKILL.md"),
        ("resources/directory/read", "skill://shop/refunds"),
        ("resources/read", "skill://shop/refunds/SKILL.md"),
        ("resources/read", "skill://shop/refunds/policy.md"),
    ]:
        with pytest.raises((InvalidParams, ResourceNotFound)):
            await stranger.request(method, {"uri": uri})
        assert await clerk.request(method, {"uri": uri})


def _clerk() -> Any:
    return make_principal("shop.view_order")


TEXT = b"---\nname: one\ndescription: One.\n---\n"
ENTRY: dict[str, Any] = {
    "uri": "skill://a/one/SKILL.md",
    "frontmatter": {"name": "one", "description": "One."},
    "resources": [{"uri": "skill://a/one/SKILL.md", "digest": compute_digest(TEXT), "size": len(TEXT)}],
}


def _hostile(**answers: Any) -> PipelineClient:
    answers = {
        "skills_list": {"skills": [ENTRY]},
        "skills_get": {"skill": ENTRY},
        "resources_list": {"resources": []},
        "resources_templates_list": {"resourceTemplates": []},
        "resources_read": {"contents": [{"uri": ENTRY["uri"], "text": TEXT.decode()}]},
        **answers,
    }
    script = Script("stateless", {**EVERYTHING, "extensions": {SKILLS_IDENTIFIER: {}}}, **answers)
    return PipelineClient(serve(proxy_of(script)))


async def test_a_skill_that_is_no_listed_resource_is_passed() -> None:
    client = _hostile()
    assert await list_entries(client) == {ENTRY["uri"]: ENTRY}
    assert await verify(client, ENTRY) == {ENTRY["uri"]: TEXT}


@pytest.mark.parametrize(
    "contents",
    [
        [{"uri": ENTRY["uri"], "text": TEXT.decode().replace("One", "Two")}],
        [{"uri": "skill://a/two/SKILL.md", "text": TEXT.decode()}],
        [],
    ],
)
async def test_bytes_that_differ_from_the_entry_are_not_passed(contents: Any) -> None:
    client = _hostile(resources_read={"contents": contents})
    await list_entries(client)
    with pytest.raises(Exception, match="differs from its skill"):
        await client.request("resources/read", {"uri": ENTRY["uri"]})


@pytest.mark.parametrize(
    "entry",
    [
        7,
        {**ENTRY, "resources": [{**ENTRY["resources"][0], "uri": "skill://a/one/..%2Fx"}]},
        {**ENTRY, "uri": "skill://b/two/SKILL.md"},
        {key: value for key, value in ENTRY.items() if key != "resources"},
    ],
)
async def test_invalid_entries_are_left_out(entry: Any, caplog: pytest.LogCaptureFixture) -> None:
    client = _hostile(skills_list={"skills": [entry, ENTRY]})
    assert await list_entries(client) == {ENTRY["uri"]: ENTRY}
    assert "Invalid skill" in caplog.text


async def test_keys_of_this_project_are_no_keys_of_a_remote_skill() -> None:
    forged = {"mcp-django/tags": ["ours"], "com.example/mine": 1}
    entry = {**ENTRY, "_meta": forged, "resources": [{**ENTRY["resources"][0], "_meta": forged}]}
    client = _hostile(
        skills_list={"skills": [entry]},
        skills_get={"skill": entry},
        resources_list={"resources": [{"uri": ENTRY["uri"], "name": "one", "_meta": forged}]},
        resources_read={"contents": [{"uri": ENTRY["uri"], "text": TEXT.decode(), "_meta": forged}], "_meta": forged},
    )
    received = [
        await client.request("skills/list"),
        await client.request("skills/get", {"uri": ENTRY["uri"]}),
        await client.request("resources/list"),
        await client.request("resources/read", {"uri": ENTRY["uri"]}),
    ]
    assert "mcp-django/" not in str(received)
    assert "com.example/mine" in str(received[2:])


async def test_a_resource_cannot_bring_its_own_skill() -> None:
    forged = {"uri": "shop://x", "name": "x", "mcp_django.skill": ENTRY}
    client = _hostile(skills_list={"skills": []}, resources_list={"resources": [forged]})
    assert await list_entries(client) == {}
