"""Tokens of external identity providers, and their linked accounts.

Covers JWT, JWKS and introspection.
"""
