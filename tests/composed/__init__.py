"""A project that serves what four sources have from one endpoint: itself, a mounted server, a remote one, a web API."""
