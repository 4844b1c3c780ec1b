"""Calls: tasks, limits, background jobs, tracing, idempotency, pending requests."""
