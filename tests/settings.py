"""Django settings of the tests.

    MCP_TEST_POSTGRES   "1" for 127.0.0.1:5432, user postgres, database test; or postgres://user:password@host:port/name.
                        Otherwise SQLite, in a file, because threads cannot share a database in memory.

    MCP_TEST_DATABASE   "sqlite": the tests' own database is SQLite, also where those that need PostgreSQL find one.
    MCP_TEST_DOORS      "asgi,view": the interaction tests use these doors only.

The tests run in a database of their own beside the one that is named.
"""

import atexit
import os
import shutil
import tempfile
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from mcp_django.oauth import oauth2_provider_settings


def postgres(url: str) -> dict[str, Any]:
    """The DATABASES entry of a postgres:// URL."""
    parts = urlsplit("postgres://postgres@127.0.0.1:5432/test" if url == "1" else url)
    return {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": parts.path.strip("/"),
        "USER": unquote(parts.username or ""),
        "PASSWORD": unquote(parts.password or ""),
        "HOST": parts.hostname or "",
        "PORT": parts.port or "",
    }


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
    "mcp_django.oauth",
    "tests.shop",
    "mcp_django.memory",
    "tests.testapp",
    "tests.library",
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

_POSTGRES = os.environ.get("MCP_TEST_POSTGRES", "")
_OWN = _POSTGRES if os.environ.get("MCP_TEST_DATABASE") != "sqlite" else ""
DATABASES = {"default": postgres(_OWN) if _OWN else sqlite()}
CHANNEL_LAYERS = {"default": {"BACKEND": "channels.layers.InMemoryChannelLayer"}}

# The memory's tools are for a server that its own tests add, so that others know one server and what is on it.
MCP: dict[str, Any] = {"AUTH": "none", "MEMORY": {"SERVER": "memory"}}
OAUTH2_PROVIDER = oauth2_provider_settings(issuer="https://testserver")
SILENCED_SYSTEM_CHECKS = ["mcp_django.E006", "mcp_django.W002"]  # that server; that whoever is on this machine may call
