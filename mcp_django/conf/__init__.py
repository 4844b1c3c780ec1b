"""The `MCP` setting, and accessors of Django's settings that apply a rule.

`options` describes the keys. The setting is read on first use, never at import, and cached until `setting_changed`. An
unknown key is ignored at run time; system checks report it with a suggestion. While a value has a wrong type or range,
every request fails. Only this package reads `settings.MCP`. The accessors of other settings apply a rule, such as a
default; a setting without one is read from `django.conf.settings`.
"""

import functools
import re
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from types import MappingProxyType
from typing import Any, Final, NamedTuple, TypeVar, cast, get_type_hints
from urllib.parse import urlsplit

from django.apps import apps
from django.conf import settings as django_settings
from django.core.exceptions import ImproperlyConfigured
from django.core.signals import setting_changed

from mcp_django.conf.options import ORM, Limits, Rates, ServerSettings, Settings
from mcp_django.conf.readers import find_reader
from mcp_django.conf.sections import (
    SettingsProblem,
    find_unknown_proxies,
    read_clients,
    read_issuers,
    read_mapping,
    read_section,
    read_servers,
)

S = TypeVar("S")
T = TypeVar("T")
OAUTH_APP: Final = "mcp_django.contrib.oauth"
"""The app that contains the embedded authorization server."""


class _ParsedSettings(NamedTuple):
    """The parsed setting and its problems.

    Every invalid value is replaced by its default.
    """

    settings: Settings
    sections: Mapping[str, Any]
    """Sections of other apps, by key."""
    problems: tuple[SettingsProblem, ...]


_SECTIONS: dict[str, type[Any]] = {}


def on_change(function: Callable[[], object]) -> Callable[[], object]:
    """Call a function when `MCP` changes; usable as a decorator."""

    def receive(*, setting: str, **kwargs: Any) -> None:
        if setting == "MCP":
            function()

    setting_changed.connect(receive, weak=False)
    return function


def on_any_change(function: Callable[[], object]) -> None:
    """Call a function when any setting of Django changes."""

    def receive(**kwargs: Any) -> None:
        function()

    setting_changed.connect(receive, weak=False)


def cached(function: Callable[..., T]) -> "functools._lru_cache_wrapper[T]":
    """Decorate a function to cache its values until any setting of Django changes."""
    cached_function = functools.cache(function)
    on_any_change(cached_function.cache_clear)
    return cached_function


@cached
def get_settings() -> Settings:
    """Return the parsed `MCP` setting.

    Raises:
        ImproperlyConfigured: invalid values; the message names all of them.
    """
    reading = _parse()
    wrong = [f"{problem.path} {problem.message}" for problem in reading.problems if not problem.unknown]
    if wrong:
        raise ImproperlyConfigured("\n".join(wrong))
    return reading.settings


def register_settings(key: str, section: type[S]) -> Callable[[], S]:
    """Register a section of the setting for an app.

    The dict `MCP[key]` is read into the dataclass `section`. Return a function that returns the current section. Call
    it each time an option is needed.

        @dataclass(frozen=True, kw_only=True)
        class ShopSettings:
            currency: str = "EUR"
            most: Annotated[int, positive] = 10

        get_settings = register_settings("SHOP", ShopSettings)  # MCP = {"SHOP": {"MOST": 20}}

    Each field is a key, in capitals, and has a default. Allowed types are bool, int, float, str, `tuple[str, ...]`
    (written as a list), each with `| None`, or `Annotated` with a reader function. A reader takes the written value and
    returns the option's value, or raises ValueError. Its message follows the option's name ("must be above 0").

    System checks report invalid values and misspelt keys. While a value is invalid, every request fails, and this
    section contains the default instead.

    Call it once, in the module of the app's models.

    Raises:
        ValueError: `key` is taken, or not a word in capitals.
        TypeError: `section` is not such a dataclass.
    """

    if not re.fullmatch(r"[A-Z][A-Z0-9_]*", key):
        raise ValueError(f"{key!r} is not a valid key for a section: use a word in capitals")
    taken = _SECTIONS.get(key, section)
    if key.lower() in {option.name for option in fields(Settings)} or taken.__qualname__ != section.__qualname__:
        raise ValueError(f"MCP[{key!r}] is already in use")
    if not is_dataclass(section):
        raise TypeError(f"{section!r} is not a dataclass")
    for name, hint in get_type_hints(section, include_extras=True).items():
        find_reader(hint, f"{section.__qualname__}.{name}")
    section()  # raises TypeError for a field without a default
    _SECTIONS[key] = section
    clear_cache()
    return lambda: cast(S, _parse().sections[key])


def get_problems() -> list[SettingsProblem]:
    """Return all problems of the setting, in its order.

    Unknown keys are included.
    """
    return list(_parse().problems)


def is_usable() -> bool:
    """Return True if all values of the setting are valid. Unknown keys are allowed."""
    return all(problem.unknown for problem in get_problems())


def autodiscover_modules() -> tuple[str, ...]:
    """Return `AUTODISCOVER_MODULES`.

    It is read at startup, so invalid values elsewhere are left to the system checks.
    """
    return _parse().settings.autodiscover_modules


def servers() -> Mapping[str, ServerSettings]:
    """Return `SERVERS` for the URLconf.

    The system checks import the URLconf, so invalid values are left for them to report.
    """
    return _parse().settings.servers


def orm_style(alias: str) -> str:
    """Return the `ORM_STYLE` of a server.

    It is read while modules of the project are imported, so invalid values elsewhere are left to the system checks.
    """
    settings = _parse().settings
    server = settings.servers.get(alias)
    return settings.orm_style if server is None or server.orm_style is None else server.orm_style


def orm() -> ORM:
    """Return `ORM`.

    Modules of the project read it during their import. The system checks report invalid values.
    """
    return _parse()[0].orm


def root_urlconf() -> Any:
    """Return ROOT_URLCONF: a module's name or another value for Django's resolver.

    None if unset.
    """
    return getattr(django_settings, "ROOT_URLCONF", None)


def auth_names() -> tuple[str, ...]:
    """Return the names in `AUTH`.

    Default with an embedded authorization server: its tokens and personal tokens.
    """
    return get_settings().auth or (("oauth", "token") if issuer() else ())


def accepts_personal_tokens() -> bool:
    """Return True if a verifier in `AUTH` may accept personal access tokens.

    This is "token", or one of the project.
    """
    return any(name == "token" or "." in name for name in auth_names())


def issuer() -> str | None:
    """Return the issuer of the embedded authorization server, or None.

    It is `OAUTH2_PROVIDER["OIDC_ISS_ENDPOINT"]`.
    """
    toolkit = getattr(django_settings, "OAUTH2_PROVIDER", None)
    found = toolkit.get("OIDC_ISS_ENDPOINT") if isinstance(toolkit, Mapping) and apps.is_installed(OAUTH_APP) else None
    return found if isinstance(found, str) and found else None


def issuers() -> tuple[str, ...]:
    """Return the issuers whose tokens `AUTH` accepts, the embedded one first."""
    names, own = auth_names(), issuer()
    embedded = (own,) if own is not None and "oauth" in names else ()
    external = [one.issuer for one in get_settings().issuers] if "external" in names else []
    return tuple(dict.fromkeys((*embedded, *external)))


def origin() -> str | None:
    """Return `ORIGIN`, or the origin of the embedded server's issuer, or None."""
    written, own = get_settings().origin, issuer()
    if written is not None or own is None:
        return written
    parts = urlsplit(own)
    return f"{parts.scheme}://{parts.netloc}" if parts.scheme and parts.netloc else None


def force_script_name() -> str:
    """Return FORCE_SCRIPT_NAME; empty if unset."""
    return django_settings.FORCE_SCRIPT_NAME or ""


def secret_keys() -> list[str]:
    """Return SECRET_KEY, followed by SECRET_KEY_FALLBACKS.

    The first key seals; the others only unseal.
    """
    keys = [django_settings.SECRET_KEY, *django_settings.SECRET_KEY_FALLBACKS]
    return [key.decode("latin-1") if isinstance(key, bytes) else key for key in keys]


def allowed_hosts() -> list[str]:
    """Return ALLOWED_HOSTS, or Django's substitute while it is empty and DEBUG is on."""
    if django_settings.DEBUG and not django_settings.ALLOWED_HOSTS:
        return [".localhost", "127.0.0.1", "[::1]"]
    return list(django_settings.ALLOWED_HOSTS)


def atomic_databases() -> tuple[str, ...]:
    """Return the aliases of the databases with ATOMIC_REQUESTS."""
    return tuple(name for name, options in django_settings.DATABASES.items() if options.get("ATOMIC_REQUESTS"))


@cached
def _parse() -> _ParsedSettings:
    found: list[SettingsProblem] = []
    raw = read_mapping(getattr(django_settings, "MCP", {}), "MCP", found)
    servers = read_servers(raw.get("SERVERS", {}), found)
    nested = {
        "limits": read_section(Limits, raw.get("LIMITS", {}), 'MCP["LIMITS"]', found),
        "orm": read_section(ORM, raw.get("ORM", {}), 'MCP["ORM"]', found),
        "rates": read_section(Rates, raw.get("RATES", {}), 'MCP["RATES"]', found),
        "servers": servers,
        "issuers": read_issuers(raw.get("ISSUERS", ()), found),
        "clients": read_clients(raw.get("CLIENTS", {}), found),
    }
    found += find_unknown_proxies(servers, raw.get("CLIENTS", {}))
    sections = {key: read_section(cls, raw.get(key, {}), f'MCP["{key}"]', found) for key, cls in _SECTIONS.items()}
    rest = {key: value for key, value in raw.items() if key not in sections}
    settings = read_section(Settings, rest, "MCP", found, **nested)

    return _ParsedSettings(settings, MappingProxyType(sections), tuple(found))


def clear_cache() -> None:
    """Clear the cached setting. It is read again on next use."""
    _parse.cache_clear()
    get_settings.cache_clear()
