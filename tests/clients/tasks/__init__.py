"""Clients with tasks, each against the fixtures: tasks that complete, fail, are cancelled, and ask."""
