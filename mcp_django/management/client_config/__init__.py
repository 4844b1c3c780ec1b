"""MCP clients and their files of configuration: what goes into which, and how to change one without harm."""
