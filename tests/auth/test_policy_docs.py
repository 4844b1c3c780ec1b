"""What docs/protect/policies.md and permissions.md show runs, and the settings that they show can be used."""

from pathlib import Path
from typing import Any

import pytest

from mcp_django import conf
from mcp_django.auth.authorization.scopes import ScopeFilter
from mcp_django.auth.principal import DjangoPrincipal
from mcp_django.protocol.errors import InsufficientScope
from mcp_django.server.primitives import registry
from mcp_django.server.primitives.registry import Registry
from tests.repository.pages import python_blocks
from tests.server.client import PipelineClient, make_principal, make_server

PROTECT = Path(__file__).resolve().parents[2] / "docs" / "protect"
POLICIES = python_blocks(PROTECT / "policies.md")


@pytest.fixture
def shown(monkeypatch: pytest.MonkeyPatch) -> Registry:
    """What the examples register."""
    monkeypatch.setattr(registry, "REGISTRIES", {})
    for block in (*POLICIES, *python_blocks(PROTECT / "permissions.md")):
        if "@tool" in block:
            exec(compile(block, "docs", "exec"), {"__name__": "docs"})
    return registry.get_registry("default")


def test_settings_that_are_shown_can_be_used(settings: Any, subtests: pytest.Subtests) -> None:
    blocks = [block for block in POLICIES if block.startswith("MCP = ")]
    assert len(blocks) == 2
    for block in blocks:
        with subtests.test(block=block):
            found: dict[str, Any] = {}
            exec(block, found)
            settings.MCP = found["MCP"]
            assert conf.get_problems() == []


async def test_the_transfer_takes_a_scope_when_it_is_large(shown: Registry) -> None:
    assert shown.problems == []
    client = PipelineClient(make_server(registry=shown), make_principal(scopes=["bank:transfer"]))
    assert await client.text("transfer", amount=5, to="you") == "5 for you"
    with pytest.raises(InsufficientScope) as refused:
        await client.call("transfer", amount=5000, to="you")
    assert refused.value.scopes == ("bank:large", "bank:transfer")


async def test_the_authorizer_takes_writing_away_at_night() -> None:
    [block] = [block for block in POLICIES if "office_hours" in block]
    found: dict[str, Any] = {"is_night": lambda: True}
    exec(block, found)
    given = DjangoPrincipal(issuer="tests", subject="1", scopes=frozenset({"orders:read", "orders:write"}))
    assert (await ScopeFilter(authorize=found["office_hours"]).filter_scopes(given)).scopes == {"orders:read"}
