"""Stored prompts and resources, their versions, and the version of the cache."""
