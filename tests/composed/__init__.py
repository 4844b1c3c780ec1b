"""A project whose endpoint serves four sources: its own tools, a mounted server, a remote one and a web API."""
