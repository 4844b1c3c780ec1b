"""Primitives of other sources: providers, mounted servers, low-level handlers."""
