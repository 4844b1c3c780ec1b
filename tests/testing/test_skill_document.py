"""`TestClient.skill`: a skill loaded as a host loads it, and the broken rules that it reports."""

from pathlib import Path
from typing import Any

import pytest

from mcp_django.contrib.skills import Skills, skill
from mcp_django.protocol.errors import MethodNotFound
from mcp_django.server.primitives.registry import Registry
from mcp_django.testing import TestClient
from mcp_django.testing.skill_document import load_skill
from tests.contrib.skills.folders import FILES, FRONTMATTER, REFUNDS_URI, serve, write
from tests.server.client import HANDSHAKE, make_server


@pytest.mark.parametrize("name", ["shop/refunds", "refunds", REFUNDS_URI, "skill://shop/refunds"])
@pytest.mark.parametrize("revision", [None, HANDSHAKE])
async def test_a_skill_is_returned_with_its_exact_files(tmp_path: Path, name: str, revision: str | None) -> None:
    client = TestClient(serve(Skills(write(tmp_path), prefix="shop")), revision=revision)
    found = await client.skill(name)
    assert found.uri == REFUNDS_URI
    assert found.files == {path.removeprefix("refunds/"): data for path, data in FILES.items()}
    assert found.frontmatter == FRONTMATTER
    assert found.text.startswith("---\nname: refunds\n")
    assert not found.is_dynamic


async def test_a_dynamic_skill_has_its_text_only() -> None:
    registry = Registry("t")

    @skill("shop/report", registry=registry)
    def report() -> str:
        """Report the stock."""
        return "# Report"

    found = await TestClient(serve(registry=registry)).skill("report")
    assert found.is_dynamic
    assert found.text.endswith("# Report")


async def test_an_unknown_skill_names_the_known_ones(tmp_path: Path) -> None:
    client = TestClient(serve(Skills(write(tmp_path), prefix="shop")))
    with pytest.raises(AssertionError, match=r"no visible skill has this name; known: skill://shop/refunds/SKILL\.md"):
        await client.skill("refund")
    with pytest.raises(MethodNotFound):
        await TestClient(make_server()).skill("refunds")


def _change(result: dict[str, Any], key: str, **changes: Any) -> dict[str, Any]:
    return {**result, key: {**result[key], **changes}}


@pytest.mark.parametrize(
    ("method", "change", "reason"),
    [
        ("skills/get", lambda found: _change(found, "skill", resources="dynamic"), "have different entries"),
        ("resources/directory/read", lambda found: {"resources": found["resources"][1:]}, "have different files"),
        ("resources/read", lambda found: {"contents": []}, "must have one content"),
        (
            "resources/read",
            lambda found: {"contents": [{**found["contents"][0], "text": "other", "blob": None}]},
            "bytes instead of",
        ),
    ],
)
async def test_a_broken_rule_is_reported(tmp_path: Path, method: str, change: Any, reason: str) -> None:
    client = TestClient(serve(Skills(write(tmp_path), prefix="shop")))

    async def request(name: str, params: Any) -> dict[str, Any]:
        result = await client.request(name, params)
        return change(result) if name == method else result

    with pytest.raises(AssertionError, match=reason):
        await load_skill("refunds", request)
