"""The MCP endpoints and the APIs of the project as protected resources (RFC 9728)."""
