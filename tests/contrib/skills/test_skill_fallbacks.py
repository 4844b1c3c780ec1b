"""Skills for clients without the extension, and functions as skills."""

from pathlib import Path
from typing import Any

import pytest

from mcp_django import Context, Server
from mcp_django.contrib.skills import Skills, SkillsExtension, skill
from mcp_django.protocol.errors import InvalidParams
from mcp_django.providers import Mount
from mcp_django.schema import DeclarationError
from mcp_django.schema.frontmatter import parse_frontmatter
from mcp_django.server.primitives.registry import Registry
from tests.contrib.skills.folders import REFUNDS_URI, list_entries, write, write_skill
from tests.server.client import HANDSHAKE, STATELESS, PipelineClient, make_principal, make_server

pytestmark = pytest.mark.parametrize("version", [STATELESS, HANDSHAKE])


def fallback(
    root: Path, version: str, *permissions: str, instructions: str | None = None, **options: Any
) -> PipelineClient:
    """A client of a server that has fallbacks for guarded skills."""
    extension = SkillsExtension(**options)
    providers = [Skills(root, prefix="shop", permission="shop.view_order")]
    server = make_server(extensions=[extension], providers=providers, instructions=instructions)
    return PipelineClient(server, make_principal(*permissions), version)


async def read_instructions(client: PipelineClient) -> str | None:
    if client.version == STATELESS:
        found = await client.request("server/discover")
    else:
        found = await client.request(
            "initialize",
            {"protocolVersion": HANDSHAKE, "capabilities": {}, "clientInfo": {"name": "c", "version": "1"}},
        )
    text: str | None = found.get("instructions")
    return text


async def test_the_instructions_name_the_skills_that_the_caller_may_read(tmp_path: Path, version: str) -> None:
    write(tmp_path)
    clerk = await read_instructions(fallback(tmp_path, version, "shop.view_order", instructions="Sell."))
    assert clerk is not None
    assert clerk.startswith("Sell.\n\nSkills, to be read")
    assert f"{REFUNDS_URI} (Refund an order, from the request to the money)" in clerk
    assert await read_instructions(fallback(tmp_path, version, instructions="Sell.")) == "Sell."
    assert await read_instructions(fallback(tmp_path, version)) is None
    assert await read_instructions(fallback(tmp_path, version, "shop.view_order", instructions="Sell.")) == clerk


async def test_the_instructions_name_a_limited_number_of_skills(tmp_path: Path, version: str) -> None:
    for number in range(25):
        write_skill(tmp_path, f"skill-{number}")
    text = await read_instructions(fallback(tmp_path, version, "shop.view_order"))
    assert text is not None
    assert text.count("skill://") == 20
    assert "5 more in skills/list" in text


async def test_prompts_contain_the_skills(tmp_path: Path, version: str) -> None:
    client = fallback(write(tmp_path), version, "shop.view_order", prompts=True)
    assert await client.names("prompts/list", "prompts") == ["inner", "refunds"]
    (message,) = (await client.request("prompts/get", {"name": "refunds"}))["messages"]
    assert message["content"]["resource"]["uri"] == REFUNDS_URI
    stranger = fallback(tmp_path, version, prompts=True)
    assert await stranger.names("prompts/list", "prompts") == []
    with pytest.raises(InvalidParams):
        await stranger.request("prompts/get", {"name": "refunds"})


async def test_the_tool_loads_skills_and_their_files(tmp_path: Path, version: str) -> None:
    client = fallback(write(tmp_path), version, "shop.view_order", tool=True)
    for name in ["refunds", REFUNDS_URI, "skill://shop/refunds"]:
        text, files = (await client.call("load_skill", skill=name))["content"]
        assert "# Refunds" in text["text"]
        assert "scripts/refund one.py" in files["text"]
    (script,) = (await client.call("load_skill", skill="refunds", path="scripts/refund one.py"))["content"]
    assert script["text"] == "print('refund')\n"
    (logo,) = (await client.call("load_skill", skill="refunds", path="logo.png"))["content"]
    assert logo["resource"]["blob"]
    assert "refunds: Refund an order" in await client.error("load_skill", skill="none")
    assert "has no file '../x'" in await client.error("load_skill", skill="refunds", path="../x")
    stranger = fallback(tmp_path, version, tool=True)
    assert await stranger.error("load_skill", skill="refunds") == "Unknown skill 'refunds'. Known skills: none."


async def test_fallbacks_are_off_by_default_and_not_mounted_in_hosts(tmp_path: Path, version: str) -> None:
    client = fallback(write(tmp_path), version, "shop.view_order", instructions=None)
    assert "tools" not in client.server.offered_capabilities
    assert "prompts" not in client.server.offered_capabilities
    inner = Server("inner", extensions=[SkillsExtension(prompts=True, tool=True)], providers=[Skills(tmp_path)])
    host = PipelineClient(make_server(mounts=[Mount(inner, prefix="in")]), version=version)
    assert "tools" not in host.server.offered_capabilities


async def test_a_function_is_a_dynamic_skill(tmp_path: Path, version: str) -> None:
    registry = Registry("default")

    @skill("shop/stock-report", registry=registry, frontmatter={"license": "MIT", "since": "2026-01-01"})
    async def stock_report(ctx: Context) -> str:
        """Report the "stock", as it is now: ok."""
        return f"# Stock for {ctx.principal.subject}\n"

    client = PipelineClient(make_server(registry=registry, extensions=[SkillsExtension()]), make_principal(), version)
    (entry,) = (await list_entries(client)).values()
    assert entry["resources"] == "dynamic"
    (contents,) = (await client.request("resources/read", {"uri": entry["uri"]}))["contents"]
    assert contents["mimeType"] == "text/markdown"
    assert parse_frontmatter(contents["text"].encode()) == entry["frontmatter"]
    assert contents["text"].endswith("---\n# Stock for somebody\n")
    assert (await client.request("skills/get", {"uri": entry["uri"]}))["skill"] == entry
    with pytest.raises(InvalidParams):
        await client.request("resources/directory/read", {"uri": "skill://shop/stock-report"})


@pytest.mark.parametrize(
    ("path", "options"),
    [
        ("shop/Stock", {}),
        ("../stock", {}),
        ("", {}),
        ("stock", {"description": " "}),
        ("stock", {"frontmatter": {"metadata": {"a": 1}}}),
    ],
)
async def test_a_function_that_breaks_a_rule_is_refused(version: str, path: str, options: dict[str, Any]) -> None:
    with pytest.raises(DeclarationError):

        @skill(path, registry=Registry("default"), **{"description": "d", **options})
        def report() -> str:
            return ""
