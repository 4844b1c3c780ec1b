"""Authorization: whether a principal may list, call, read or subscribe."""
