"""Other MCP servers, used by this project: on the official SDK."""
