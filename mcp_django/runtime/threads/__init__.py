"""The thread pool for blocking code, and the SQL and transactions of its threads."""
