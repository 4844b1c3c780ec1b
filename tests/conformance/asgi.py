"""The ASGI application of the fixtures server; settings must be configured."""

from django.core.asgi import get_asgi_application

from mcp_django.asgi import mount

application = mount(get_asgi_application())
