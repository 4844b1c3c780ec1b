"""The example of docs/test/testing.md, run as a project would run it."""

import unittest

import pytest
from django.test import override_settings

from mcp_django import Context, tool
from mcp_django.server.primitives import registry
from tests.repository.pages import ROOT, python_blocks


@pytest.mark.django_db(transaction=True)
def test_the_tests_of_the_example_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "REGISTRIES", {})
    with override_settings(MCP={"AUTH": "none", "SERVERS": {"default": {}, "staff": {}}}):

        @tool(scopes=["orders:read"])
        def search_orders(query: str) -> list[str]:
            return []

        @tool(server="staff")
        async def cancel_order(number: int, ctx: Context) -> str:
            return "Cancelled" if (await ctx.elicit("Sure?")).data else "Left"

        (block,) = python_blocks(ROOT / "docs" / "test" / "testing.md")
        names: dict[str, object] = {"__name__": "example.tests"}
        exec(compile(block, "testing.md", "exec"), names)
        found = unittest.defaultTestLoader.loadTestsFromTestCase(names["OrderTests"])  # type: ignore[arg-type]
        result = unittest.TestResult()
        found.run(result)
    assert result.testsRun == 2
    assert result.errors + result.failures == []
