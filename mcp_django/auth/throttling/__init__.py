"""Throttling: rates counted in Django's cache."""
