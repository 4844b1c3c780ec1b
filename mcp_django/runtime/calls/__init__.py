"""Calls as tasks: concurrency, background jobs, tracing, idempotency and pending requests."""
