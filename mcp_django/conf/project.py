"""Other settings of the project, read mainly by the system checks.

Values are read as they are. Invalid entries are skipped, because Django reports them.
"""

import re
from collections.abc import Iterator, Mapping
from importlib.metadata import PackageNotFoundError, version
from typing import Any, Final

from django.apps import apps
from django.conf import settings as django_settings
from django.utils.module_loading import import_string

DISTRIBUTION: Final = "mcp-django-channels"


def read_version() -> str:
    """Return the version of the installed distribution, and 0 for a copy of the package without metadata."""
    try:
        return version(DISTRIBUTION)
    except PackageNotFoundError:
        return "0"


def databases() -> dict[str, Mapping[str, Any]]:
    """Return the entries of DATABASES by alias."""
    return _entries("DATABASES")


def channel_layer(alias: str) -> Mapping[str, Any] | None:
    """Return an entry of CHANNEL_LAYERS, or None."""
    return _entries("CHANNEL_LAYERS").get(alias)


def cache_backend(alias: str) -> str | None:
    """Return the backend of an entry of CACHES, or None without such an entry."""
    backend = _entries("CACHES").get(alias, {}).get("BACKEND")
    return backend if isinstance(backend, str) else None


def has_trusted_proxy() -> bool:
    """Return True if the project trusts the headers of a proxy in front of it."""
    return any(getattr(django_settings, name, None) for name in ("SECURE_PROXY_SSL_HEADER", "USE_X_FORWARDED_HOST"))


def middleware() -> Iterator[tuple[str, Any]]:
    """Yield path and object of each entry of MIDDLEWARE that can be imported."""
    paths = getattr(django_settings, "MIDDLEWARE", ())
    for path in paths if isinstance(paths, list | tuple) else ():
        found = _import_or_none(path)
        if found is not None:
            yield path, found


def oauth_model_name(name: str) -> str:
    """Return the name of a django-oauth-toolkit model as "app.Model".

    `name` is "Application", "RefreshToken" and so on.
    """
    setting = "OAUTH2_PROVIDER_" + re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).upper() + "_MODEL"
    return str(getattr(django_settings, setting, f"oauth2_provider.{name}"))


def oauth_provider() -> Mapping[str, Any]:
    """Return OAUTH2_PROVIDER; empty if unset."""
    raw = getattr(django_settings, "OAUTH2_PROVIDER", None)
    return raw if isinstance(raw, Mapping) else {}


def is_served_over_asgi() -> bool:
    """Return True if the settings suggest that the project is served over ASGI."""
    named = bool(getattr(django_settings, "ASGI_APPLICATION", None))
    return named or apps.is_installed("daphne") or apps.is_installed("channels")


def _import_or_none(path: Any) -> Any:
    try:
        return import_string(path)
    except Exception:
        return None


def _entries(setting: str) -> dict[str, Mapping[str, Any]]:
    raw = getattr(django_settings, setting, None)
    if not isinstance(raw, Mapping):
        return {}
    return {str(name): entry for name, entry in raw.items() if isinstance(entry, Mapping)}


def authentication_backends() -> list[str]:
    """Return the dotted paths of the backends that decide about users' permissions."""
    return list(django_settings.AUTHENTICATION_BACKENDS)
