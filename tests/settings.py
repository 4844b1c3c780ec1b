"""Django settings of the tests, on SQLite: in a file, because threads cannot share a database in memory.

`tests.settings_postgres` has the same on PostgreSQL: `pytest --ds tests.settings_postgres`.
"""

import atexit
import shutil
import tempfile
from pathlib import Path
from typing import Any

from mcp_django.contrib.oauth import oauth2_provider_settings


def sqlite() -> dict[str, Any]:
    """A database file of this process. Deferred transactions, the default, are the hard case for concurrent writers."""
    directory = tempfile.mkdtemp(prefix="mcp-django-tests-")
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    name = str(Path(directory) / "tests.sqlite3")
    options = {"timeout": 20, "init_command": "PRAGMA journal_mode=WAL; PRAGMA synchronous=OFF;"}
    return {"ENGINE": "django.db.backends.sqlite3", "NAME": name, "OPTIONS": options, "TEST": {"NAME": name}}


SECRET_KEY = "for-tests-only"
DEBUG = False
ALLOWED_HOSTS = ["testserver", "localhost", "127.0.0.1", "[::1]"]
ROOT_URLCONF = "tests.urls"
USE_TZ = True
# Django 6.1 requires it for mail; earlier ones take no notice.
MAILERS = {"default": {"BACKEND": "django.core.mail.backends.locmem.EmailBackend"}}
TIME_ZONE = "UTC"
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
STATIC_URL = "static/"

INSTALLED_APPS = [
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "channels",
    "oauth2_provider",
    "mcp_django",
    "mcp_django.contrib.oauth",
    "tests.shop",
    "tests.columns",
    "mcp_django.contrib.memory",
    "mcp_django.contrib.tasks",
    "mcp_django.contrib.apps",
    "mcp_django.contrib.control_room",
    "mcp_django.contrib.playground",
    "mcp_django.contrib.skills",
    "tests.testapp",
    "tests.library",
    "tests.exports",
]

MIDDLEWARE = [
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
]

TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ],
        },
    },
]

DATABASES = {"default": sqlite()}
CHANNEL_LAYERS = {"default": {"BACKEND": "channels.layers.InMemoryChannelLayer"}}

# The memory's tools are on a server that its own tests add, so that other tests have a single server.
MCP: dict[str, Any] = {"AUTH": "none", "MEMORY": {"SERVER": "memory"}}
OAUTH2_PROVIDER = oauth2_provider_settings(issuer="https://testserver")
SILENCED_SYSTEM_CHECKS = ["mcp_django.E006", "mcp_django.W002"]  # that server; local callers
