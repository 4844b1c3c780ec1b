"""Primitives from elsewhere: providers, mounted servers and low-level handlers."""
