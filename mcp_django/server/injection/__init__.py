"""Injection: parameters of handlers that the server fills."""
