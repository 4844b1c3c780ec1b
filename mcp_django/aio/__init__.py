"""Tools for asyncio and time that know neither Django nor MCP."""
