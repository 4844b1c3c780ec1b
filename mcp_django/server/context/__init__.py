"""`Context`: the API for handlers."""
