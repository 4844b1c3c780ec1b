"""A project with data, which `benchmarks.models` measures.

This package, Django REST framework and django-mcp-server serve its airports.
"""
