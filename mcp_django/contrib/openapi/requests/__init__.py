"""Requests of operations: parameters, bodies, credentials and transports."""
