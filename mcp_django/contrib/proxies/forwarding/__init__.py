"""Calls and elicitations that are forwarded between a client and a remote server."""
