"""Access tokens: their format, scopes, audiences and verification."""
