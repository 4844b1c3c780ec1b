"""Backends: the places where attempts of tasks run."""
