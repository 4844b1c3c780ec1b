"""The demo: a small Django project over the world's airports, served to MCP clients. It is not part of the wheel."""
