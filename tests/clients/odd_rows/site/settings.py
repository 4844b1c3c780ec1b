"""Django settings of a site without time zones, whose rows have odd values."""

import os

SECRET_KEY = "for-tests-only"
DEBUG = False
ALLOWED_HOSTS = ["127.0.0.1"]
ROOT_URLCONF = "tests.clients.odd_rows.site.urls"
USE_TZ = False
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
INSTALLED_APPS = [
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "rest_framework",
    "mcp_django",
    "tests.clients.odd_rows.site",
]
DATABASES = {"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": os.environ["ODD_ROWS_DATABASE"]}}
REST_FRAMEWORK = {"DEFAULT_PERMISSION_CLASSES": [], "DEFAULT_AUTHENTICATION_CLASSES": []}
SILENCED_SYSTEM_CHECKS = ["mcp_django.W002"]
MCP = {"AUTH": "none", "LIMITS": {"RESULT_BYTES": 5_000_000}, "SERVERS": {"default": {"NAME": "odd rows"}}}
