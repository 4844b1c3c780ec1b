"""OAuth clients: registration, metadata documents, redirect URIs, and their expiry."""
