"""The examples of docs/test/testing.md, run as a project would run them."""

import unittest

import pytest
from django.test import override_settings

from mcp_django import Context, tool
from mcp_django.server.primitives import registry
from tests.repository.pages import ROOT, python_blocks

BLOCKS = python_blocks(ROOT / "docs" / "test" / "testing.md")


@pytest.mark.django_db(transaction=True)
def test_the_tests_of_the_examples_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "REGISTRIES", {})
    with override_settings(MCP={"AUTH": "none", "SERVERS": {"default": {}, "staff": {}}}):

        @tool(scopes=["orders:read"])
        def search_orders(query: str) -> list[str]:
            return []

        @tool(permission="auth.delete_user")
        def delete_order(number: int) -> str:
            return "Deleted"

        @tool(server="staff")
        async def cancel_order(number: int, ctx: Context) -> str:
            return "Cancelled" if (await ctx.elicit("Sure?")).data else "Left"

        suite = unittest.TestSuite()
        for block in BLOCKS:
            names: dict[str, object] = {"__name__": "example.tests"}
            exec(compile(block, "testing.md", "exec"), names)
            (case,) = (value for name, value in names.items() if name.endswith("Tests"))
            suite.addTests(unittest.defaultTestLoader.loadTestsFromTestCase(case))  # type: ignore[arg-type]
        result = unittest.TestResult()
        suite.run(result)
    assert result.testsRun == 6
    assert result.errors + result.failures == []
