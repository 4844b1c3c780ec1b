"""Django settings of the site. The harness passes its database, and settings of a test, as JSON."""

import datetime
import json
import os
from typing import Any

import time_machine

SECRET_KEY = "for-tests-only"
DEBUG = False
ALLOWED_HOSTS = ["127.0.0.1"]
ROOT_URLCONF = "tests.servers.site.urls"
USE_TZ = True
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
ASGI_APPLICATION = "tests.servers.site.asgi.application"
WSGI_APPLICATION = "tests.servers.site.wsgi.application"
INSTALLED_APPS = [
    *os.environ.get("SITE_APPS", "").split(),
    "django.contrib.contenttypes",
    "django.contrib.auth",
    "mcp_django",
    "tests.servers.site",
]
MIDDLEWARE: list[str] = []
DATABASES = {"default": json.loads(os.environ["SITE_DATABASE"])}
# Everything worth a look goes to the server's own log, which the tests read.
LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {"line": {"format": "%(levelname)s %(name)s: %(message)s"}},
    "handlers": {"log": {"class": "logging.StreamHandler", "formatter": "line"}},
    "root": {"handlers": ["log"], "level": "WARNING"},
    "loggers": {"django": {"handlers": [], "propagate": True}},
}
MCP: dict[str, Any] = {"AUTH": "none"}
if "SITE_CLOCK_DIFFERENCE" in os.environ:
    # The time of day of this process differs by these seconds; CLOCK_MONOTONIC is unchanged.
    _now = datetime.datetime.now(datetime.UTC)
    time_machine.travel(_now + datetime.timedelta(seconds=float(os.environ["SITE_CLOCK_DIFFERENCE"]))).start()

globals().update(json.loads(os.environ.get("SITE_SETTINGS", "{}")))
