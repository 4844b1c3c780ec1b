"""Tokens of external identity providers: JWT, JWKS, introspection, and the accounts they map to."""
