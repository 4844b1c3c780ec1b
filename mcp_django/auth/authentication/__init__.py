"""Authentication: from the credential of a request to a principal, or a refusal."""
