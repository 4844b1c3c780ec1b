"""Django settings of the composed project. The harness sets the addresses of its database, the remote and the API."""

import json
import os
from typing import Any

SECRET_KEY = "for-tests-only"
DEBUG = False
ALLOWED_HOSTS = ["127.0.0.1"]
ROOT_URLCONF = "tests.composed.urls"
USE_TZ = True
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
INSTALLED_APPS = ["django.contrib.contenttypes", "django.contrib.auth", "mcp_django", "tests.composed"]
DATABASES = {
    "default": {
        "ENGINE": "django.db.backends.sqlite3",
        "NAME": os.environ["COMPOSED_DATABASE"],
        "OPTIONS": {"timeout": 20, "transaction_mode": "IMMEDIATE"},
    }
}
COMPOSED: dict[str, Any] = json.loads(os.environ["COMPOSED"])
"""Where things are: `remote` and `api` are URLs, `document` is a file."""
MCP: dict[str, Any] = {
    "AUTH": "token",
    "SERVERS": {
        "default": {
            "NAME": "composed",
            "MOUNTS": {"weather": "weather"},
            "PROXIES": {
                "remote": {"PERMISSION": "any", "CREDENTIALS": "tests.composed.declared.remote_credentials"},
            },
        },
        "weather": {"MIDDLEWARE": ["tests.composed.declared.counted"]},
    },
    "CLIENTS": {"remote": {"URL": COMPOSED["remote"]}},
    "CHANNEL_LAYER": None,
}
