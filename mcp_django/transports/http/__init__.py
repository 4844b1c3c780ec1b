"""Streamable HTTP: one endpoint, served by the ASGI app and by the Django view."""
