"""Settings of a shop on django-oscar, as its documentation lists them."""

import oscar
from oscar.defaults import *  # noqa: F403

from tests.real_projects.common_settings import *  # noqa: F403
from tests.real_projects.common_settings import DJANGO_MIDDLEWARE
from tests.real_projects.databases import sqlite

SITE_ID = 1
ROOT_URLCONF = "tests.real_projects.oscar.urls"
DEFAULT_AUTO_FIELD = "django.db.models.AutoField"
INSTALLED_APPS = [
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.staticfiles",
    "django.contrib.sites",
    "django.contrib.flatpages",
    *oscar.INSTALLED_APPS[8:],  # after Django's own
    "sorl.thumbnail",
    "channels",
    "mcp_django",
]
MIDDLEWARE = [*DJANGO_MIDDLEWARE, "oscar.apps.basket.middleware.BasketMiddleware"]
AUTHENTICATION_BACKENDS = [
    "oscar.apps.customer.auth_backends.EmailBackend",
    "django.contrib.auth.backends.ModelBackend",
]
HAYSTACK_CONNECTIONS = {"default": {"ENGINE": "haystack.backends.simple_backend.SimpleEngine"}}
DATABASES = {"default": {**sqlite(), "ATOMIC_REQUESTS": True}}
MCP = {"AUTH": "none"}
