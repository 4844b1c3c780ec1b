"""Fields of a toolset: exposed columns, computed fields, and their JSON."""
