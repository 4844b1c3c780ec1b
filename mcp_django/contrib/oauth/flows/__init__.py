"""Grants of the authorization server: code, refresh, consent and revocation."""
