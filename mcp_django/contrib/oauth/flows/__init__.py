"""The grants of the authorization server: authorization code, refresh, consent and revocation."""
