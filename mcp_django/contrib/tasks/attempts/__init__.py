"""Attempts: the calls that run the tools of tasks."""
