"""Calls and requests that are forwarded between a client and a remote server."""
