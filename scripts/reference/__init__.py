"""Generators of the reference in `docs/reference/`: each page comes from the code, and a test keeps it up to date."""
