"""Stored prompts and resources, their versions, and the cache version."""
