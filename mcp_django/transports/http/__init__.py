"""Streamable HTTP: one exchange, reached through two doors, the ASGI app beside Django and the Django view."""
