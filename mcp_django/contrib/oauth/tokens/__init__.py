"""Access tokens: format, scopes, audiences and verification."""
