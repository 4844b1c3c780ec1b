"""Connections to a remote server, by credential, call and event loop."""
