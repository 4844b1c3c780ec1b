"""What of the project's other settings is looked at to learn how it is set up, by the system checks above all. Read as
they stand; what is broken there is left out, for Django to report.
"""

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


def middleware() -> Iterator[tuple[str, Any]]:
    """Path and object of each entry of MIDDLEWARE that can be imported."""
    paths = getattr(django_settings, "MIDDLEWARE", ())
    for path in paths if isinstance(paths, list | tuple) else ():
        found = _imported(path)
        if found is not None:
            yield path, found


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
