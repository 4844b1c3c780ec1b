"""The event log: publishing, following, and the channel layer that wakes the followers."""
