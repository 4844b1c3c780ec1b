"""The transports of the client: Streamable HTTP, HTTP+SSE, WebSocket and stdio."""
