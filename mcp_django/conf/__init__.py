"""The `MCP` setting. Its keys are described in `options`.

The setting is read when it is needed, never at import, and kept until `setting_changed` says it is another. A key that
nobody knows is ignored at run time and reported by the system checks, with a suggestion; with a wrong type or value
nothing is served. Nothing else in the package imports `django.conf`: what it needs of Django's settings it asks for
here.
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
from django.dispatch import receiver

from mcp_django.conf.options import Limits, Rates, ServerSettings, Settings
from mcp_django.conf.readers import reader_of
from mcp_django.conf.sections import (
    Problem,
    entries,
    read_clients,
    read_issuers,
    read_section,
    read_servers,
    strange_proxies,
)

S = TypeVar("S")
OAUTH: Final = "mcp_django.contrib.oauth"
"""The app that has the embedded authorization server."""


class _Reading(NamedTuple):
    """The setting with every wrong value replaced by its default, and what was wrong."""

    settings: Settings
    sections: Mapping[str, Any]
    """Those of other apps, by key."""
    problems: tuple[Problem, ...]


_SECTIONS: dict[str, type[Any]] = {}


@functools.cache
def get_settings() -> Settings:
    """The `MCP` setting. Raises ImproperlyConfigured, naming every value that cannot be used."""
    reading = _read()
    wrong = [f"{problem.path} {problem.message}" for problem in reading.problems if not problem.unknown]
    if wrong:
        raise ImproperlyConfigured("\n".join(wrong))
    return reading.settings


def register_settings(key: str, section: type[S]) -> Callable[[], S]:
    """Give an app a section of the setting: `MCP[key]`, a dict, is read into the dataclass `section`. Returns what
    gives its present value; call it when an option is needed.

        @dataclass(frozen=True, kw_only=True)
        class ShopSettings:
            currency: str = "EUR"
            most: Annotated[int, positive] = 10

        get_settings = register_settings("SHOP", ShopSettings)  # MCP = {"SHOP": {"MOST": 20}}

    Each field is a key, in capitals, and has a default. Its type says what is taken: bool, int, float, str,
    `tuple[str, ...]` (a list of them), each `| None`; or `Annotated` with a function that takes what was written and
    returns the value, or raises a ValueError whose text is read after the option's name ("must be above 0"). System
    checks report what is wrong and misspelt, as for the other options; while a value is wrong, nothing is served, and
    the default stands in for it here.

    Call it once, where the app's models are. Raises ValueError for a key that is taken or no word in capitals,
    TypeError for a section that is no such dataclass.
    """
    if not re.fullmatch(r"[A-Z][A-Z0-9_]*", key):
        raise ValueError(f"{key!r} is no key for a section: it is a word in capitals")
    taken = _SECTIONS.get(key, section)
    if key.lower() in {option.name for option in fields(Settings)} or taken.__qualname__ != section.__qualname__:
        raise ValueError(f"MCP[{key!r}] has a meaning already")
    if not is_dataclass(section):
        raise TypeError(f"{section!r} is no dataclass")
    for name, hint in get_type_hints(section, include_extras=True).items():
        reader_of(hint, f"{section.__qualname__}.{name}")
    section()  # each field has a default
    _SECTIONS[key] = section
    forget()
    return lambda: cast(S, _read().sections[key])


def problems() -> list[Problem]:
    """Everything wrong with the setting, unknown keys included, in the order it is written."""
    return list(_read().problems)


def is_usable() -> bool:
    """Can the setting be read? Keys that mean nothing do no harm."""
    return all(problem.unknown for problem in problems())


def autodiscover_modules() -> tuple[str, ...]:
    """`AUTODISCOVER_MODULES`. Read at startup, so wrong values elsewhere are left for the system checks to report."""
    return _read().settings.autodiscover_modules


def servers() -> Mapping[str, ServerSettings]:
    """`SERVERS` for the URLconf, which the system checks read: wrong values are left for them to report."""
    return _read().settings.servers


def orm_style() -> str:
    """`ORM_STYLE`. Read while the project's modules are imported, so wrong values elsewhere are left for the system
    checks to report.
    """
    return _read()[0].orm_style


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
    """ROOT_URLCONF: a module's name, or whatever else Django's resolver takes; None where there is none."""
    return getattr(django_settings, "ROOT_URLCONF", None)


def auth_names() -> tuple[str, ...]:
    """Who may call, by the names of `AUTH`. Where that says nothing and there is an embedded authorization server,
    bearers of its tokens and of personal ones.
    """
    return get_settings().auth or (("oauth", "token") if issuer() else ())


def issuer() -> str | None:
    """The issuer of the embedded authorization server (`OAUTH2_PROVIDER["OIDC_ISS_ENDPOINT"]`); None without one."""
    toolkit = getattr(django_settings, "OAUTH2_PROVIDER", None)
    found = toolkit.get("OIDC_ISS_ENDPOINT") if isinstance(toolkit, Mapping) and apps.is_installed(OAUTH) else None
    return found if isinstance(found, str) and found else None


def issuers() -> tuple[str, ...]:
    """The authorization servers whose tokens `AUTH` takes, the embedded one first."""
    names, own = auth_names(), issuer()
    embedded = (own,) if own is not None and "oauth" in names else ()
    others = [one.issuer for one in get_settings().issuers] if "external" in names else []
    return tuple(dict.fromkeys((*embedded, *others)))


def origin() -> str | None:
    """`ORIGIN`, or that of the embedded authorization server's issuer; None where neither is known."""
    written, own = get_settings().origin, issuer()
    if written is not None or own is None:
        return written
    parts = urlsplit(own)
    return f"{parts.scheme}://{parts.netloc}" if parts.scheme and parts.netloc else None


def login_url() -> str:
    """LOGIN_URL: a path, a URL, or the name of a view."""
    return str(django_settings.LOGIN_URL)


def session_cookie_name() -> str:
    """SESSION_COOKIE_NAME."""
    return str(django_settings.SESSION_COOKIE_NAME)


def session_engine() -> str:
    """SESSION_ENGINE: the module whose SessionStore holds the sessions of the site."""
    return str(django_settings.SESSION_ENGINE)


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
def _read() -> _Reading:
    found: list[Problem] = []
    raw = entries(getattr(django_settings, "MCP", {}), "MCP", found)
    servers = read_servers(raw.get("SERVERS", {}), found)
    nested = {
        "limits": read_section(Limits, raw.get("LIMITS", {}), 'MCP["LIMITS"]', found),
        "rates": read_section(Rates, raw.get("RATES", {}), 'MCP["RATES"]', found),
        "servers": servers,
        "issuers": read_issuers(raw.get("ISSUERS", ()), found),
        "clients": read_clients(raw.get("CLIENTS", {}), found),
    }
    found += strange_proxies(servers, raw.get("CLIENTS", {}))
    sections = {key: read_section(cls, raw.get(key, {}), f'MCP["{key}"]', found) for key, cls in _SECTIONS.items()}
    rest = {key: value for key, value in raw.items() if key not in sections}
    settings = read_section(Settings, rest, "MCP", found, **nested)
    return _Reading(settings, MappingProxyType(sections), tuple(found))


def forget() -> None:
    """Read the setting anew when it is next needed."""
    _read.cache_clear()
    get_settings.cache_clear()


@receiver(setting_changed)
def _on_change(*, setting: str, **kwargs: Any) -> None:
    if setting == "MCP":
        forget()
