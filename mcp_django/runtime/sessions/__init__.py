"""Sessions as rows: their cache, their expiry and reports of their activity."""
