"""State of a single call and its session, shared by all parts of the server."""
