"""Validation of values against JSON Schemas, with limits and messages."""
