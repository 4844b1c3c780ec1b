"""The `MCP` setting. Its keys are described in `options`.

The setting is read when it is needed, never at import, and kept until `setting_changed` says it is another. A key that
nobody knows is ignored at run time and reported by the system checks, with a suggestion; with a wrong type or value
nothing is served. Nothing else in the package imports `django.conf`: what it needs of Django's settings it asks for
here.
"""

import functools
import re
import reprlib
from collections.abc import Mapping
from dataclasses import fields
from types import MappingProxyType
from typing import Any, Final, NamedTuple, TypeVar, get_type_hints

from django.conf import settings as django_settings
from django.core.exceptions import ImproperlyConfigured
from django.core.signals import setting_changed
from django.dispatch import receiver

from .options import Limits, ServerSettings, Settings
from .readers import ALIAS, Reader, WrongValue, closest

S = TypeVar("S", Limits, ServerSettings, Settings)
_OPTIONS: Final[dict[type[Any], tuple[dict[str, str], dict[str, Any]]]] = {
    section: (
        {option.name.upper(): option.name for option in fields(section)},
        get_type_hints(section, include_extras=True),
    )
    for section in (Limits, ServerSettings, Settings)
}
"""The fields of each section by their keys, and the types of the fields. Finding them takes longest."""


class Problem(NamedTuple):
    """Something wrong with the setting."""

    path: str
    """Where, such as `MCP["LIMITS"]["BODY"]`."""
    message: str
    """What, to be read after the path."""
    suggestion: str | None
    """What may have been meant."""
    unknown: bool = False
    """A key that means nothing, as against a value that cannot be used."""


@functools.cache
def get_settings() -> Settings:
    """The `MCP` setting. Raises ImproperlyConfigured, naming every value that cannot be used."""
    settings, found = _read()
    wrong = [f"{problem.path} {problem.message}" for problem in found if not problem.unknown]
    if wrong:
        raise ImproperlyConfigured("\n".join(wrong))
    return settings


def problems() -> list[Problem]:
    """Everything wrong with the setting, unknown keys included, in the order it is written."""
    return list(_read()[1])


def is_usable() -> bool:
    """Can the setting be read? Keys that mean nothing do no harm."""
    return all(problem.unknown for problem in problems())


def autodiscover_modules() -> tuple[str, ...]:
    """`AUTODISCOVER_MODULES`. Read at startup, so wrong values elsewhere are left for the system checks to report."""
    return _read()[0].autodiscover_modules


def servers() -> Mapping[str, ServerSettings]:
    """`SERVERS` for the URLconf, which the system checks read: wrong values are left for them to report."""
    return _read()[0].servers


def debug() -> bool:
    """Is DEBUG on?"""
    return bool(django_settings.DEBUG)


def uses_i18n() -> bool:
    """USE_I18N."""
    return bool(django_settings.USE_I18N)


def language_code() -> str:
    """LANGUAGE_CODE."""
    return str(django_settings.LANGUAGE_CODE)


def root_urlconf() -> Any:
    """ROOT_URLCONF: a module's name, or whatever else Django's resolver takes."""
    return django_settings.ROOT_URLCONF


def force_script_name() -> str:
    """FORCE_SCRIPT_NAME; empty when it is not set."""
    return django_settings.FORCE_SCRIPT_NAME or ""


def secret_keys() -> list[str]:
    """SECRET_KEY, which seals, followed by SECRET_KEY_FALLBACKS, which only open."""
    keys = [django_settings.SECRET_KEY, *django_settings.SECRET_KEY_FALLBACKS]
    return [key.decode("latin-1") if isinstance(key, bytes) else key for key in keys]


def allowed_hosts() -> list[str]:
    """ALLOWED_HOSTS, or what Django puts in its place while it is empty and DEBUG is on."""
    if django_settings.DEBUG and not django_settings.ALLOWED_HOSTS:
        return [".localhost", "127.0.0.1", "[::1]"]
    return list(django_settings.ALLOWED_HOSTS)


def csrf_trusted_origins() -> list[str]:
    """CSRF_TRUSTED_ORIGINS."""
    return list(django_settings.CSRF_TRUSTED_ORIGINS)


def atomic_databases() -> tuple[str, ...]:
    """The aliases of the databases that have ATOMIC_REQUESTS."""
    return tuple(name for name, options in django_settings.DATABASES.items() if options.get("ATOMIC_REQUESTS"))


def user_model_name() -> str:
    """AUTH_USER_MODEL."""
    return django_settings.AUTH_USER_MODEL


@functools.cache
def _read() -> tuple[Settings, tuple[Problem, ...]]:
    """The setting with every wrong value replaced by its default, and what was wrong."""
    found: list[Problem] = []
    raw = _dict(getattr(django_settings, "MCP", {}), "MCP", found)
    nested = {
        "limits": _section(Limits, raw.get("LIMITS", {}), 'MCP["LIMITS"]', found),
        "servers": _servers(raw.get("SERVERS", {}), found),
    }
    return _section(Settings, raw, "MCP", found, **nested), tuple(found)


def _servers(raw: Any, found: list[Problem]) -> Mapping[str, ServerSettings]:
    path = 'MCP["SERVERS"]'
    servers: dict[str, ServerSettings] = {}
    for alias, options in _dict(raw, path, found).items():
        if not isinstance(alias, str) or not re.fullmatch(ALIAS, alias):
            message = f"has the alias {reprlib.repr(alias)}, which is not a word in small letters"
            found.append(Problem(path, message, None))
            continue
        options = _dict(options, f'{path}["{alias}"]', found)
        if alias != "default":
            options = {"NAME": alias, "PATH": f"mcp/{alias}", **options}
        server = _section(ServerSettings, options, f'{path}["{alias}"]', found)
        where = f'{path}["{alias}"]["PATH"]'
        taken = next((other for other, earlier in servers.items() if earlier.path == server.path), None)
        if taken is not None and not any(problem.path == where for problem in found):
            found.append(Problem(where, f"is {server.path!r}, which is the path of {taken!r} already", None))
        servers[alias] = server
    if "default" not in servers:
        if servers:
            found.append(Problem(path, 'needs a "default", which serves what names no server', None))
        servers["default"] = ServerSettings()
    return MappingProxyType(servers)


def _section(cls: type[S], raw: Any, path: str, found: list[Problem], **nested: Any) -> S:
    options = _dict(raw, path, found)
    names, hints = _OPTIONS[cls]
    values = dict(nested)
    for key, value in options.items():
        name = names.get(key) if isinstance(key, str) else None
        where = f"{path}[{_quoted(key)}]"
        if name is None:
            found.append(Problem(where, "is not an option", closest(key, names), unknown=True))
        elif name not in nested:
            reader: Reader = hints[name].__metadata__[0]
            try:
                values[name] = reader(value)
            except WrongValue as wrong:
                message = f"{wrong.message}, not {reprlib.repr(value)}"
                found.append(Problem(where, message, wrong.suggestion))
    return cls(**values)


def _dict(raw: Any, path: str, found: list[Problem]) -> Mapping[Any, Any]:
    if isinstance(raw, Mapping):
        return raw
    found.append(Problem(path, f"must be a dict, not {reprlib.repr(raw)}", None))
    return {}


def _quoted(key: object) -> str:
    return f'"{key}"' if isinstance(key, str) else reprlib.repr(key)


def forget() -> None:
    """Read the setting anew when it is next needed."""
    _read.cache_clear()
    get_settings.cache_clear()


@receiver(setting_changed)
def _on_change(*, setting: str, **kwargs: Any) -> None:
    if setting == "MCP":
        forget()
