"""Rows as tools show them: lookup by key, versions, inline rows, schemas."""
