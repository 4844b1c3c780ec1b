"""K-1 to K-12 of skills as one table: both eras, both doors, direct, behind a mount, a proxy and OAuth."""

import base64
import re
from dataclasses import dataclass, field
from typing import Any

import pytest
from django.core.asgi import get_asgi_application

from mcp_django.asgi import mount
from mcp_django.protocol.skills import (
    MAX_SKILL_BYTES,
    MAX_SKILL_FILES,
    compute_digest,
    find_problems,
    get_directory_uri,
    get_last_segment,
    parse_entry,
)
from mcp_django.schema.frontmatter import parse_frontmatter
from tests.interaction.clients import HANDSHAKE, STATELESS, Client
from tests.interaction.fixtures import serve
from tests.interaction.lessons import FOLDER
from tests.interaction.transports import Transport

pytestmark = pytest.mark.django_db
IDENTIFIER = "io.modelcontextprotocol/skills"
INVALID_PARAMS, RESOURCE_NOT_FOUND = -32602, -32002
EXTENSIONS = ["mcp_django.contrib.skills.SkillsExtension"]
PROVIDERS = [f"tests.interaction.lessons.{name}_skills" for name in ("open", "scoped", "secret")]
PROXY = "tests.interaction.lessons.create_proxy"
MOUNTS = {"far": {"SERVER": "lessons", "URI_PREFIX": "far"}}
SERVERS: dict[str, dict[str, Any]] = {
    "default": {"NAME": "default"},
    "lessons": {"NAME": "lessons", "STORED": False, "EXTENSIONS": EXTENSIONS, "PROVIDERS": PROVIDERS},
    "schools": {"NAME": "schools", "STORED": False, "EXTENSIONS": EXTENSIONS, "MOUNTS": MOUNTS},
    "copies": {"NAME": "copies", "STORED": False, "EXTENSIONS": EXTENSIONS, "PROVIDERS": [PROXY]},
}


@pytest.fixture(autouse=True)
def _served(settings: Any) -> None:
    serve(settings, SERVERS)


@dataclass
class Place:
    """A server with skills, as one client sees it."""

    client: Client
    scheme: str
    """Beginning of the URIs, with the prefix of a mount or a proxy."""
    skills: str
    """First segment of the skills that the caller may read."""
    hidden: tuple[str, ...]
    """First segments of skills that the caller may not see."""
    is_remote: bool
    entries: dict[str, Any] = field(default_factory=dict)
    page: dict[str, Any] = field(default_factory=dict)

    @property
    def root(self) -> str:
        return f"{self.scheme}{self.skills}"

    @property
    def mine(self) -> dict[str, Any]:
        """The entries below `root`. For others a scope may be missing."""
        return {uri: entry for uri, entry in self.entries.items() if uri.startswith(f"{self.root}/")}

    @property
    def refunds(self) -> dict[str, Any]:
        entry: dict[str, Any] = self.entries[f"{self.root}/refunds/SKILL.md"]
        return entry

    async def ask(self, method: str, uri: str) -> dict[str, Any]:
        result: dict[str, Any] = (await self.client.request(method, {"uri": uri})).result
        return result

    async def refuse(self, method: str, uri: str) -> int:
        """Return the code of the error."""
        reply = await self.client.request(method, {"uri": uri}, id=1)
        assert not reply.served, (method, uri)
        code: int = reply.error["code"]
        return code

    async def read(self, uri: str) -> tuple[bytes, dict[str, Any]]:
        [content] = (await self.ask("resources/read", uri))["contents"]
        data = base64.b64decode(content["blob"]) if "blob" in content else content["text"].encode()
        return data, content

    def check_cache_fields(self, result: dict[str, Any]) -> None:
        assert result["ttlMs"] >= 0
        assert result["cacheScope"] == "private"


async def k_1_the_extension_is_declared_with_resources(place: Place) -> None:
    capabilities = place.client.hello["capabilities"]
    assert capabilities["extensions"][IDENTIFIER] == {"directoryRead": True}
    assert "resources" in capabilities


async def k_2_a_skill_begins_with_a_valid_frontmatter(place: Place) -> None:
    for uri, entry in place.mine.items():
        data, _ = await place.read(uri)
        assert data.startswith(b"---")
        assert list(find_problems(entry["frontmatter"])) == []
        assert entry["frontmatter"]["name"] == get_last_segment(get_directory_uri(uri))


async def k_3_the_uri_has_a_name_of_the_registry_and_the_name_last(place: Place) -> None:
    for uri in place.entries:
        scheme, _, path = uri.partition("://")
        assert f"{scheme}://" == place.scheme
        assert re.fullmatch(r"[a-z0-9.-]+", path.split("/")[0])
        assert path.endswith("/SKILL.md")


async def k_4_an_entry_is_complete_and_exact(place: Place) -> None:
    for uri, entry in place.mine.items():
        assert set(entry) == {"uri", "frontmatter", "resources"}
        _, manifest = parse_entry(entry)
        data, _ = await place.read(uri)
        assert parse_frontmatter(data) == entry["frontmatter"] == manifest.frontmatter
    _, manifest = parse_entry(place.refunds)
    folder = FOLDER / "refunds"
    files = {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    assert {file.path for file in manifest.files or ()} == set(files)
    for file in manifest.files or ():
        assert (file.digest, file.size) == (compute_digest(files[file.path]), len(files[file.path]))


async def k_5_an_entry_keeps_to_the_limits(place: Place) -> None:
    for entry in place.entries.values():
        assert len(entry["resources"]) <= MAX_SKILL_FILES
        assert sum(file["size"] for file in entry["resources"]) <= MAX_SKILL_BYTES


async def k_6_a_nested_skill_has_an_entry_and_is_part_of_the_outer_one(place: Place) -> None:
    inner = place.entries[f"{place.root}/refunds/deep/inner/SKILL.md"]
    assert all(file in place.refunds["resources"] for file in inner["resources"])


async def k_7_the_list_is_a_complete_page_with_cache_fields(place: Place) -> None:
    assert place.page.get("resultType") == ("complete" if place.client.stateless else None)
    place.check_cache_fields(place.page)
    assert not any(uri.startswith(f"{place.scheme}{name}/") for uri in place.entries for name in place.hidden)
    reply = await place.client.request("skills/list", {"cursor": "unknown"}, id=1)
    assert reply.error["code"] == INVALID_PARAMS


async def k_8_each_entry_is_served_by_its_uri(place: Place) -> None:
    for uri, entry in place.mine.items():
        got = await place.ask("skills/get", uri)
        assert got["skill"] == entry
        assert "nextCursor" not in got
        place.check_cache_fields(got)
    for uri in (f"{place.root}/none/SKILL.md", f"{place.root}/refunds/policy.md", f"{place.root}/refunds"):
        assert await place.refuse("skills/get", uri) == INVALID_PARAMS
    for name in place.hidden:
        assert await place.refuse("skills/get", f"{place.scheme}{name}/refunds/SKILL.md") == INVALID_PARAMS


async def k_9_a_directory_has_its_direct_children(place: Place) -> None:
    found = await place.ask("resources/directory/read", f"{place.root}/refunds")
    place.check_cache_fields(found)
    kinds = {child["uri"].removeprefix(f"{place.root}/refunds/"): child["mimeType"] for child in found["resources"]}
    assert kinds["deep"] == kinds["scripts"] == "inode/directory"
    assert set(kinds) == {path.name for path in (FOLDER / "refunds").iterdir()}
    unknown = [f"{place.root}/refunds/SKILL.md", f"{place.root}/refunds/none", f"{place.root}/refunds/../single"]
    for uri in [*unknown, *(f"{place.scheme}{name}/refunds" for name in place.hidden)]:
        assert await place.refuse("resources/directory/read", uri) == INVALID_PARAMS


async def k_10_files_are_read_with_exact_bytes(place: Place) -> None:
    for file in place.refunds["resources"]:
        data, content = await place.read(file["uri"])
        assert content["uri"] == file["uri"]
        assert (compute_digest(data), len(data)) == (file["digest"], file["size"])
    _, content = await place.read(place.refunds["uri"])
    assert content["mimeType"] == "text/markdown"
    listed = {one["uri"]: one for one in (await place.client.request("resources/list")).result["resources"]}
    shown = listed[place.refunds["uri"]]
    assert (shown["name"], shown["description"]) == ("refunds", place.refunds["frontmatter"]["description"])
    hidden = [f"{place.scheme}{name}/refunds/policy.md" for name in place.hidden]
    for uri in [f"{place.root}/refunds/none.txt", f"{place.root}/refunds/..%2fsingle/SKILL.md", *hidden]:
        assert await place.refuse("resources/read", uri) in (INVALID_PARAMS, RESOURCE_NOT_FOUND)


async def k_11_names_are_unique_and_no_reserved_key_is_used(place: Place) -> None:
    fields = [entry["frontmatter"] for entry in place.mine.values()]
    names = [one["name"] for one in fields]
    assert len(names) == len(set(names)) == 4
    assert not any(key.startswith("io.modelcontextprotocol/") for one in fields for key in one.get("metadata", {}))


async def k_12_the_instructions_name_the_skills(place: Place) -> None:
    instructions = place.client.hello.get("instructions", "")
    # The instructions do not wait for a remote server.
    assert (place.refunds["uri"] in instructions) is not place.is_remote
    assert not any(f"{place.scheme}{name}/" in instructions for name in place.hidden)


RULES = [rule for name, rule in globals().items() if re.match(r"k_\d+_", name)]
PLACES = {
    "direct": ("lessons", "skill://", "open", ("secret",), "alice"),
    "direct, as root": ("lessons", "skill://", "secret", (), "root"),
    "mount": ("schools", "far+skill://", "open", ("secret",), "alice"),
    "proxy": ("copies", "r+skill://", "open", (), "alice"),
    "oauth": ("lessons", "skill://", "scoped", ("secret",), "painter"),
    "oauth and mount": ("schools", "far+skill://", "scoped", ("secret",), "painter"),
}


def test_the_table_is_complete() -> None:
    assert [int(rule.__name__.split("_")[1]) for rule in RULES] == list(range(1, 13))


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("door", ["asgi", "view"])
@pytest.mark.parametrize("revision", [STATELESS, HANDSHAKE[-1]])
async def test_the_rules_of_skills_hold(place: str, door: str, revision: str, subtests: pytest.Subtests) -> None:
    server, scheme, skills, hidden, token = PLACES[place]
    transport = (
        Transport(lambda: mount(get_asgi_application())) if door == "asgi" else Transport(get_asgi_application, "/view")
    )
    client = await Client(transport, revision, server=server, token=token, capabilities={}).open()
    page = (await client.request("skills/list")).result
    entries = {entry["uri"]: entry for entry in page["skills"]}
    found = Place(client, scheme, skills, hidden, place == "proxy", entries, page)
    for rule in RULES:
        with subtests.test(rule=rule.__name__):
            await rule(found)
