"""Page of access in the admin: who may do what."""
