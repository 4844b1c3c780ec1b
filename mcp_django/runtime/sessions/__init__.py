"""Sessions as rows: store, cache, expiry and activity reports."""
