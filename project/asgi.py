"""ASGI entry point: MCP requests take the fast path, everything else goes to Django."""

import os

from django.core.asgi import get_asgi_application

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "project.settings")

# Django is set up first, because the imports below need its apps.
django_application = get_asgi_application()

from django.conf import settings  # noqa: E402
from django.contrib.staticfiles.handlers import ASGIStaticFilesHandler  # noqa: E402

import mcp_django.asgi  # noqa: E402

if settings.DEBUG:
    # A web server does this in production; here Daphne alone serves the admin's style sheets.
    django_application = ASGIStaticFilesHandler(django_application)

application = mcp_django.asgi.mount(django_application)
