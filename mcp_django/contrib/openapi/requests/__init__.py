"""Requests of operations: parameters, bodies and credentials, over HTTP or in process."""
