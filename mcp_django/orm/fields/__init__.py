"""Fields of a toolset: the columns and methods that a client may name, and their JSON."""
