"""The ASGI application: the ASGI door at /mcp, and Django at other paths."""

from django.core.asgi import get_asgi_application

from mcp_django.asgi import mount

application = mount(get_asgi_application())
