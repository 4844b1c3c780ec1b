"""Clients with tasks, which let tasks complete, fail, be cancelled, and ask."""
