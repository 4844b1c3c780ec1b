"""Thread pool for blocking work: leases, database connections, SQL cancellation."""
