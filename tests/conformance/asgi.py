"""The ASGI application of the fixtures server; DJANGO_SETTINGS_MODULE and FIXTURES_DATABASE must be set."""

from django.core.asgi import get_asgi_application

# Django is set up first: the imports below need its apps.
django_application = get_asgi_application()

from mcp_django.asgi import mount  # noqa: E402

application = mount(django_application)
