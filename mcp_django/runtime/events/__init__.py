"""Event log: publishing, following, and wake-ups over the channel layer."""
