"""Schemas of functions: signatures, docstrings, prompt arguments and results."""
