"""Django settings of the protected site.

They are those that a project needs, and those that the harness passes in the environment.
"""

import json
import os
from pathlib import Path
from typing import Any

from mcp_django.contrib.oauth import oauth2_provider_settings

ORIGIN = f"http://127.0.0.1:{os.environ.get('SITE_PORT', '8000')}"

SECRET_KEY = "for-tests-only"
DEBUG = False
ALLOWED_HOSTS = ["127.0.0.1"]
ROOT_URLCONF = "tests.clients.oauth.site.urls"
USE_TZ = True
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
STATIC_URL = "static/"
LOGIN_URL = "login"
INSTALLED_APPS = [
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "oauth2_provider",
    "mcp_django",
    "mcp_django.contrib.oauth",
    "tests.clients.oauth.site",
]
MIDDLEWARE = [
    "django.middleware.security.SecurityMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
]
TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "DIRS": [Path(__file__).with_name("templates")],
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ]
        },
    }
]
DATABASES = {"default": json.loads(os.environ["SITE_DATABASE"])}
# Warnings and errors go to the log of the server, which the tests read.
LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {"line": {"format": "%(levelname)s %(name)s: %(message)s"}},
    "handlers": {"log": {"class": "logging.StreamHandler", "formatter": "line"}},
    "root": {"handlers": ["log"], "level": "WARNING"},
    # Django logs a warning for each refused request, and each flow has some of these.
    "loggers": {"django": {"handlers": [], "propagate": True}, "django.request": {"level": "ERROR"}},
}
OAUTH2_PROVIDER = oauth2_provider_settings(issuer=ORIGIN)
MCP: dict[str, Any] = {
    "SCOPES": {"shop:read": "Look at the shop", "shop:write": "Change the shop"},
    "SCOPE_IMPLIES": {"shop:write": ["shop:read"]},
    # All of the tests come from one address.
    "RATES": {"REGISTRATION": None, "TOKEN_FAILURES": None},
    "SERVERS": {"default": {"NAME": "protected", "REQUIRED_SCOPES": ["shop:read"]}},
}

globals().update(json.loads(os.environ.get("SITE_SETTINGS", "{}")))
