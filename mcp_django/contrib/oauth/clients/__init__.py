"""OAuth clients: registration, metadata documents, display and expiry."""
