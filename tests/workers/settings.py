"""Django settings of the workers' site: one with an authorization server, personal tokens, and tools that speak."""

import json
import os

from mcp_django.contrib.oauth import oauth2_provider_settings
from tests.servers.site.settings import *  # noqa: F403

OAUTH2_PROVIDER = oauth2_provider_settings(issuer="http://127.0.0.1:8000")
ROOT_URLCONF = "tests.workers.urls"
STATIC_URL = "static/"
INSTALLED_APPS = [
    "django.contrib.contenttypes",
    "django.contrib.auth",
    "django.contrib.sessions",
    "oauth2_provider",
    "mcp_django",
    "mcp_django.contrib.oauth",
    "tests.workers.site",
]
globals().update(json.loads(os.environ.get("SITE_SETTINGS", "{}")))
