"""What of the project's other settings is looked at to learn how it is set up, by the system checks above all. Read as
they stand; what is broken there is left out, for Django to report.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from django.apps import apps
from django.conf import settings as django_settings
from django.utils.module_loading import import_string


def databases() -> dict[str, Mapping[str, Any]]:
    """The entries of DATABASES by alias."""
    return _entries("DATABASES")


def channel_layer(alias: str) -> Mapping[str, Any] | None:
    """An entry of CHANNEL_LAYERS; None when there is none."""
    return _entries("CHANNEL_LAYERS").get(alias)


def cache_backend(alias: str) -> str | None:
    """The backend of an entry of CACHES; None when there is no such entry."""
    backend = _entries("CACHES").get(alias, {}).get("BACKEND")
    return backend if isinstance(backend, str) else None


def trusts_a_proxy() -> bool:
    """Does the project believe a proxy in front of it what it says of a request?"""
    return any(getattr(django_settings, name, None) for name in ("SECURE_PROXY_SSL_HEADER", "USE_X_FORWARDED_HOST"))


def middleware() -> Iterator[tuple[str, Any]]:
    """Path and object of each entry of MIDDLEWARE that can be imported."""
    paths = getattr(django_settings, "MIDDLEWARE", ())
    for path in paths if isinstance(paths, list | tuple) else ():
        found = _imported(path)
        if found is not None:
            yield path, found


def oauth_model_name(name: str) -> str:
    """The model that django-oauth-toolkit uses as its "Application", "RefreshToken" and so on: "app.Model"."""
    setting = "OAUTH2_PROVIDER_" + re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).upper() + "_MODEL"
    return str(getattr(django_settings, setting, f"oauth2_provider.{name}"))


def oauth_provider() -> Mapping[str, Any]:
    """OAUTH2_PROVIDER; empty where there is none."""
    raw = getattr(django_settings, "OAUTH2_PROVIDER", None)
    return raw if isinstance(raw, Mapping) else {}


def serves_asgi() -> bool:
    """Does the project look as if it were served over ASGI?"""
    named = bool(getattr(django_settings, "ASGI_APPLICATION", None))
    return named or apps.is_installed("daphne") or apps.is_installed("channels")


def _imported(path: Any) -> Any:
    try:
        return import_string(path)
    except Exception:
        return None


def _entries(setting: str) -> dict[str, Mapping[str, Any]]:
    raw = getattr(django_settings, setting, None)
    if not isinstance(raw, Mapping):
        return {}
    return {str(name): entry for name, entry in raw.items() if isinstance(entry, Mapping)}
