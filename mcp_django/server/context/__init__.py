"""`Context`: the API of handlers."""
