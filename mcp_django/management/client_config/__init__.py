"""Configuration files of MCP clients: their entries, and safe changes."""
