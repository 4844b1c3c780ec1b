"""A project with data, measured by `benchmarks.models`: airports behind this package, DRF, and django-mcp-server."""
