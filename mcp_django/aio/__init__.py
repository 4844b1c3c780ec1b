"""asyncio and time helpers, independent of Django and MCP."""
