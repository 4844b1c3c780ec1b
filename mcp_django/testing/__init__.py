"""Test client for projects: calls a server in the test's own process.

from mcp_django.testing import TestClient

async def test_orders_are_found(self):
    client = TestClient(user=self.alice)
    found = await client.call_tool("search_orders", {"query": "tea"})
"""

from mcp_django.testing.app_page import AppDocument
from mcp_django.testing.client import TestClient, accept, cancel, decline
from mcp_django.testing.skill_document import SkillDocument

__all__ = ["AppDocument", "SkillDocument", "TestClient", "accept", "cancel", "decline"]
