"""Test client for projects: calls a server in the test's own process.

from mcp_django.testing import Client

async def test_orders_are_found(self):
    client = Client(user=self.alice)
    found = await client.call_tool("search_orders", {"query": "tea"})
"""

from mcp_django.testing.client import Client, accept, cancel, decline

__all__ = ["Client", "accept", "cancel", "decline"]
