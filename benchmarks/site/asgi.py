"""The ASGI door at /mcp, Django behind it."""

from django.core.asgi import get_asgi_application

from mcp_django.asgi import mount

application = mount(get_asgi_application())
