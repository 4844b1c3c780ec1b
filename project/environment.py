"""Environment variables of the settings, and private files of a checkout.

Everything the demo creates (database, secret key, password of the demo user) lives in one directory, `var/` by default.
The directory ignores itself, so none of it can be committed by accident.
"""

import os
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from django.core.exceptions import ImproperlyConfigured
from django.core.management.utils import get_random_secret_key


def flag(name: str, *, default: bool) -> bool:
    """Read a yes/no environment variable; `1 true yes on` mean yes, anything else means no."""
    value = os.environ.get(name)
    return default if value is None else value.strip().lower() in {"1", "true", "yes", "on"}


def words(name: str, *, default: list[str]) -> list[str]:
    """Read a comma-separated environment variable."""
    value = os.environ.get(name)
    return default if value is None else [word.strip() for word in value.split(",") if word.strip()]


def choice(name: str, allowed: tuple[str, ...]) -> str:
    """Read an environment variable that is one of a few words; the first when it is not set.

    Raises:
        ImproperlyConfigured: for any other.
    """
    value = os.environ.get(name, allowed[0]).strip().lower()
    if value not in allowed:
        raise ImproperlyConfigured(f"{name} is {value!r}; use {' or '.join(repr(word) for word in allowed)}")
    return value


def private_directory(default: Path) -> Path:
    """Return the directory for local state (`DEMO_DIR`, or the default), created with a `.gitignore` that covers it."""
    directory = Path(os.environ.get("DEMO_DIR") or default)
    ignore = directory / ".gitignore"
    if not ignore.exists():
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        ignore.write_text("*\n")
    return directory


def secret(path: Path) -> str:
    """Return the secret kept at `path`, made on first use and readable by its owner only.

    Two processes that start together agree on one value: the file appears whole and only once.
    """
    if not path.exists():
        with tempfile.NamedTemporaryFile("w", dir=path.parent) as draft:
            draft.write(get_random_secret_key())
            draft.flush()
            with suppress(FileExistsError):
                path.hardlink_to(draft.name)
    return path.read_text().strip()


def database(url: str, *, default: Path) -> dict[str, Any]:
    """Turn `DATABASE_URL` into an entry of DATABASES; without one, SQLite at `default`.

    Accepts `postgres://user:password@host:port/name` (also `postgresql://`; a host that is a directory goes in as
    `?host=/run/postgresql`) and `sqlite:////absolute/path` or `sqlite:///relative/path`.

    Raises:
        ImproperlyConfigured: for any other scheme.
    """
    parts = urlsplit(url)
    if parts.scheme in {"postgres", "postgresql"}:
        query = dict(pair.split("=", 1) for pair in parts.query.split("&") if "=" in pair)
        return {
            "ENGINE": "django.db.backends.postgresql",
            "NAME": unquote(parts.path.lstrip("/")),
            "USER": unquote(parts.username or ""),
            "PASSWORD": unquote(parts.password or ""),
            "HOST": unquote(query.get("host", parts.hostname or "")),
            "PORT": parts.port or "",
            "CONN_HEALTH_CHECKS": True,
        }
    if parts.scheme not in {"", "sqlite"}:
        raise ImproperlyConfigured(f"DATABASE_URL starts with {parts.scheme}://; use postgres:// or sqlite://")
    return {
        "ENGINE": "django.db.backends.sqlite3",
        "NAME": unquote(parts.path.removeprefix("/")) or default,
        "OPTIONS": {
            # Readers never wait for the writer, and a transaction takes the write lock when it begins, so that
            # concurrent requests queue for it (up to 20 s) and none fails halfway with "database is locked".
            "init_command": "PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL;",
            "transaction_mode": "IMMEDIATE",
            "timeout": 20,
        },
    }


def channel_layers(redis_url: str) -> dict[str, Any]:
    """Return CHANNEL_LAYERS: in memory for one process, Redis for several when `redis_url` is given."""
    if not redis_url:
        return {"default": {"BACKEND": "channels.layers.InMemoryChannelLayer"}}
    return {
        "default": {
            "BACKEND": "channels_redis.pubsub.RedisPubSubChannelLayer",
            "CONFIG": {"hosts": [redis_url]},
        }
    }
