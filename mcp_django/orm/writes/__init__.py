"""Writes of model rows: forms, transactions, confirmation, idempotency, versions."""
