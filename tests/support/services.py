"""Services of the tests marked `postgres` and `redis`.

The services listen on their usual ports, or at the URLs in the environment:

MCP_TEST_POSTGRES   postgres://user:password@host:port/name
MCP_TEST_REDIS      redis://host:port/number
"""

import os
from typing import Any
from urllib.parse import unquote, urlsplit

POSTGRES_URL = os.environ.get("MCP_TEST_POSTGRES", "postgres://postgres@127.0.0.1:5432/test")
REDIS_URL = os.environ.get("MCP_TEST_REDIS", "redis://127.0.0.1:6379/0")


def postgres_database(url: str = POSTGRES_URL) -> dict[str, Any]:
    """Return the DATABASES entry of a postgres:// URL."""
    parts = urlsplit(url)
    return {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": parts.path.strip("/"),
        "USER": unquote(parts.username or ""),
        "PASSWORD": unquote(parts.password or ""),
        "HOST": parts.hostname or "",
        "PORT": parts.port or "",
    }
