"""The examples of docs/protect/policies.md and permissions.md run, and their settings are valid."""

from pathlib import Path
from typing import Any

import pytest

from mcp_django import conf
from mcp_django.auth.authentication.verifiers import AuthError
from mcp_django.auth.authorization.scopes import PrincipalRefused, ScopeFilter
from mcp_django.auth.principal import DjangoPrincipal
from mcp_django.auth.requests import AuthRequest
from mcp_django.protocol.errors import InsufficientScope
from mcp_django.protocol.headers import Headers
from mcp_django.server.primitives import registry
from mcp_django.server.primitives.registry import Registry
from tests.repository.pages import python_blocks
from tests.server.client import PipelineClient, make_principal, make_server

PROTECT = Path(__file__).resolve().parents[2] / "docs" / "protect"
POLICIES = python_blocks(PROTECT / "policies.md")


@pytest.fixture
def shown(monkeypatch: pytest.MonkeyPatch) -> Registry:
    """The primitives that the examples register."""
    monkeypatch.setattr(registry, "REGISTRIES", {})
    for block in (*POLICIES, *python_blocks(PROTECT / "permissions.md")):
        if "@tool" in block:
            exec(compile(block, "docs", "exec"), {"__name__": "docs"})
    return registry.get_registry("default")


def test_the_settings_of_the_examples_are_valid(settings: Any, subtests: pytest.Subtests) -> None:
    blocks = [block for block in POLICIES if block.startswith("MCP = ")]
    assert len(blocks) == 2
    for block in blocks:
        with subtests.test(block=block):
            found: dict[str, Any] = {}
            exec(block, found)
            settings.MCP = found["MCP"]
            assert conf.get_problems() == []


async def test_a_large_transfer_needs_a_scope(shown: Registry) -> None:
    assert shown.problems == []
    client = PipelineClient(make_server(registry=shown), make_principal(scopes=["bank:transfer"]))
    assert await client.text("transfer", amount=5, to="you") == "5 for you"
    with pytest.raises(InsufficientScope) as refused:
        await client.call("transfer", amount=5000, to="you")
    assert refused.value.scopes == ("bank:large", "bank:transfer")


async def test_the_authorizer_removes_the_write_scope_at_night() -> None:
    [block] = [block for block in POLICIES if "office_hours" in block]
    found: dict[str, Any] = {"is_night": lambda: True}
    exec(block, found)
    given = DjangoPrincipal(issuer="tests", subject="1", scopes=frozenset({"orders:read", "orders:write"}))
    assert (await ScopeFilter(authorize=found["office_hours"]).filter_scopes(given)).scopes == {"orders:read"}


async def test_the_authorizer_finds_the_tenant_by_the_host_and_refuses_by_a_header(subtests: pytest.Subtests) -> None:
    [block] = [block for block in POLICIES if "members_only" in block]
    found: dict[str, Any] = {}
    exec(block, found)
    scope_filter = ScopeFilter(authorize=found["members_only"])
    member = DjangoPrincipal(issuer="tests", subject="1", claims={"tenant": "acme"})
    admitted = [{"Host": "acme.example", "X-Gateway": "public"}, {"host": "acme.example:8443", "x-gateway": "public"}]
    for headers in admitted:
        with subtests.test(headers=headers):
            request = AuthRequest(Headers.from_text(headers))
            assert await scope_filter.filter_scopes(member, request=request) is member
    refused = [
        {"Host": "globex.example", "X-Gateway": "public"},
        {"Host": "other.example", "X-Gateway": "public"},
        {"Host": "acme.example", "X-Gateway": "internal"},
        {"Host": "acme.example", "X-Gateway": "internal,public"},
        {"Host": "acme.example"},
        {},
    ]
    for headers in refused:
        with subtests.test(headers=headers), pytest.raises(PrincipalRefused):
            await scope_filter.filter_scopes(member, request=AuthRequest(Headers.from_text(headers)))


async def test_the_verifier_accepts_tokens_at_the_host_of_their_tenant() -> None:
    [block] = [block for block in python_blocks(PROTECT / "permissions.md") if "TenantTokens" in block]
    found: dict[str, Any] = {}
    exec(block, found)
    verifier = found["TenantTokens"]()
    acme = AuthRequest(Headers.from_text({"Host": "acme.example"}))
    assert (await verifier.verify("tenant-acme-7", resource=None, request=acme)).issuer == "https://acme.example"
    with pytest.raises(AuthError):
        await verifier.verify("tenant-globex-7", resource=None, request=acme)
