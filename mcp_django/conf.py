"""The `MCP` setting, and the reference of its keys: each field of the dataclasses below is one, in capitals.

The setting is read when it is needed, never at import, and kept until `setting_changed` says it is another. A key that
nobody knows is ignored at run time and reported by the system checks, with a suggestion; a wrong type or value stops
the project. Nothing else in the package imports `django.conf`: what it needs of Django's settings it asks for here.
"""

import difflib
import functools
import math
import re
import reprlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from types import MappingProxyType
from typing import Annotated, Any, NamedTuple, TypeVar, get_type_hints

from django.conf import settings as django_settings
from django.core.exceptions import ImproperlyConfigured
from django.core.signals import setting_changed
from django.dispatch import receiver

S = TypeVar("S", "Limits", "ServerSettings", "Settings")
Reader = Callable[[Any], Any]
"""Takes what the project wrote and returns the value, or raises _WrongValue."""

AUTH_NAMES = ("none", "token")
ERAS = ("handshake", "stateless")
LEVELS = ("debug", "info", "notice", "warning", "error", "critical", "alert", "emergency")

_DOTTED = r"[^\W\d]\w*(\.[^\W\d]\w*)+"
_ALIAS = r"[a-z][a-z0-9_-]{0,63}"


class _WrongValue(ValueError):
    def __init__(self, message: str, suggestion: str | None = None) -> None:
        super().__init__(message)
        self.message, self.suggestion = message, suggestion


def _closest(word: object, known: Iterable[str]) -> str | None:
    text = str(word)
    found = difflib.get_close_matches(text.upper(), [name.upper() for name in known], n=1)
    return next((name for name in known if found and name.upper() == found[0]), None)


def _flag(raw: Any) -> bool:
    if not isinstance(raw, bool):
        raise _WrongValue("must be True or False")
    return raw


def _matching(pattern: str, what: str) -> Reader:
    def read(raw: Any) -> str:
        if not isinstance(raw, str) or not re.fullmatch(pattern, raw, re.DOTALL):
            raise _WrongValue(f"must be {what}")
        return raw

    return read


def _integer(least: int, most: int | None = None) -> Reader:
    def read(raw: Any) -> int:
        if isinstance(raw, bool) or not isinstance(raw, int) or raw < least or (most is not None and raw > most):
            raise _WrongValue(f"must be a whole number of {least} " + (f"to {most}" if most else "or more"))
        return raw

    return read


def _seconds(*, zero: bool = False) -> Reader:
    def read(raw: Any) -> float:
        number = isinstance(raw, int | float) and not isinstance(raw, bool) and math.isfinite(raw)
        if not number or raw < 0 or (raw == 0 and not zero):
            raise _WrongValue(f"must be a number of seconds{'' if zero else ' above 0'}")
        return float(raw)

    return read


def _optional(reader: Reader) -> Reader:
    return lambda raw: None if raw is None else reader(raw)


def _several(reader: Reader) -> Reader:
    def read(raw: Any) -> tuple[Any, ...]:
        if isinstance(raw, str) or not isinstance(raw, Sequence):
            raise _WrongValue("must be a list")
        return tuple(dict.fromkeys(reader(item) for item in raw))

    return read


def _one_of(choices: Sequence[str]) -> Reader:
    def read(raw: Any) -> str:
        if raw not in choices:
            raise _WrongValue(f"must be one of {', '.join(map(repr, choices))}", _closest(raw, choices))
        return str(raw)

    return read


def _eras(raw: Any) -> tuple[str, ...]:
    eras: tuple[str, ...] = _several(_one_of(ERAS))(raw)
    if not eras:
        raise _WrongValue("must name at least one era")
    return eras


def _mapping(raw: Any) -> Mapping[str, Any]:
    if not isinstance(raw, Mapping) or not all(isinstance(key, str) for key in raw):
        raise _WrongValue("must be a dict with strings as keys")
    return MappingProxyType(dict(raw))


def _auth(raw: Any) -> tuple[str, ...]:
    if raw is None:
        return ()
    names = raw if isinstance(raw, list | tuple) and raw else [raw]
    for name in names:
        if name not in AUTH_NAMES and not (isinstance(name, str) and re.fullmatch(_DOTTED, name)):
            message = "must be None, 'none', 'token', a dotted path to a verifier, or a list of them"
            raise _WrongValue(message, _closest(name, AUTH_NAMES))
    if "none" in names and len(names) > 1:
        raise _WrongValue("must name 'none' alone or not at all")
    return tuple(dict.fromkeys(names))


_word = _matching(r".*\S.*", "a string that is not empty")
_dotted = _matching(_DOTTED, "a dotted path such as 'shop.mcp.Audit'")
_module = _matching(r"[^\W\d]\w*(\.[^\W\d]\w*)*", "names of modules in apps, such as 'mcp_tools'")
_origin = _matching(r"[a-z][a-z0-9+.-]*://[^/\sA-Z?#]+", "origins such as 'https://app.example.com', without a path")
_path = _matching(r"[^\s?#/]+(/[^\s?#/]+)*", "a URL path such as 'mcp', without a slash at either end")

Flag = Annotated[bool, _flag]
Text = Annotated[str, _word]
OptionalText = Annotated[str | None, _optional(_word)]
Count = Annotated[int, _integer(1)]
Seconds = Annotated[float, _seconds()]
SecondsOrZero = Annotated[float, _seconds(zero=True)]
DottedPaths = Annotated[tuple[str, ...], _several(_dotted)]
Origins = Annotated[tuple[str, ...], _several(_origin)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """`MCP["LIMITS"]`: what one client may ask of a worker, and one worker of the machine."""

    body: Count = 4 * 1024 * 1024
    """Bytes of a request's body."""
    nesting: Annotated[int, _integer(4, 512)] = 64
    """How deep arrays and objects of a message may stand in one another."""
    in_flight: Count = 32
    """Calls that one session (handshake era) or principal (stateless era) may have running at once."""
    sessions_per_owner: Annotated[int, _integer(1, 32767)] = 20
    """Live sessions of one principal. One more ends the session that was idle longest."""
    sessions: Count = 10_000
    """Live sessions of one server. Above it `initialize` is refused until some end or expire."""
    session_idle: Seconds = 3600.0
    """Seconds without a message after which a session expires, unless it is serving a call."""
    session_lifetime: Seconds = 7 * 24 * 3600.0
    """Seconds after which a session expires even if it is in use."""
    sse_upgrade_after: SecondsOrZero = 5.0
    """Seconds after which the answer to a call that is still running becomes an event stream."""
    keep_alive: Seconds = 15.0
    """Seconds between the comments that keep a silent event stream open."""
    question_wait: Seconds = 600.0
    """Seconds a handshake-era call waits for the client to answer a question."""
    state_bytes: Annotated[int, _integer(1024)] = 64 * 1024
    """Bytes of the sealed `requestState` that carries a conversation from round to round."""
    state_ttl: Seconds = 3600.0
    """Seconds for which a `requestState` can be answered."""
    answers: Count = 64
    """Answers that one conversation may hold."""
    rounds: Count = 32
    """Rounds that one conversation may take."""
    stale_rounds: Count = 3
    """Rounds in a row that may end without asking for an answer the conversation already has."""
    lanes: Count = 16
    """Threads that run sync handlers and the ORM."""
    lane_queue: Annotated[int, _integer(0)] = 256
    """Calls that may wait for a lane. One more is refused at once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerSettings:
    """One entry of `MCP["SERVERS"]`: an endpoint under its alias. `"default"` serves what names no server."""

    name: Text = "django"
    """`serverInfo.name`. The default is the alias, and "django" for the default server."""
    version: Text = "1"
    """`serverInfo.version`: the version of the project, not of this package."""
    title: OptionalText = None
    """`serverInfo.title`, for people."""
    description: OptionalText = None
    """`serverInfo.description`, in the revisions that have it."""
    instructions: OptionalText = None
    """What the model should know about this server before it uses it."""
    website_url: OptionalText = None
    """`serverInfo.websiteUrl`, in the revisions that have it."""
    path: Annotated[str, _path] = "mcp"
    """Where the endpoint is, below the place of `mcp_django.urls`. The default for another alias is "mcp/<alias>"."""
    eras: Annotated[tuple[str, ...], _eras] = ERAS
    """The eras served: "handshake" (the revisions with `initialize`), "stateless", or both."""
    page_size: Annotated[int | None, _optional(_integer(1))] = 1000
    """Entries of a page of a list; None for all. Generous, because there are clients that read the first page only."""
    timeout: Annotated[float | None, _optional(_seconds())] = None
    """Seconds a handler may take, unless its declaration says otherwise. None: as long as it likes."""
    log_level: Annotated[str | None, _optional(_one_of(LEVELS))] = "info"
    """The least level of log messages sent to a client that has named none; None: it gets none."""
    cache_ttl: SecondsOrZero = 60.0
    """Seconds for which clients may keep a list (`ttlMs`)."""
    middleware: DottedPaths = ()
    """Dotted paths of middleware, outermost first."""
    providers: DottedPaths = ()
    """Dotted paths of providers, asked after the registered declarations."""
    lifespan: Annotated[str | None, _optional(_dotted)] = None
    """Dotted path of an async context manager entered once per process; handlers see its value as `ctx.lifespan`."""
    capabilities: Annotated[Mapping[str, Any], _mapping] = field(default_factory=lambda: MappingProxyType({}))
    """Entries added to the capabilities the server declares, such as "experimental"."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """`MCP` itself."""

    auth: Annotated[tuple[str, ...], _auth] = ()
    """Who may call. None, here (): nobody (403), or with DEBUG the local principal. "none": the local principal, who
    comes from loopback. "token": bearers of personal access tokens. Dotted paths: whom these verifiers know."""
    local_user: OptionalText = None
    """Username of the user the local principal acts as. None: it acts as nobody, with all rights."""
    servers: Mapping[str, ServerSettings] = field(
        default_factory=lambda: MappingProxyType({"default": ServerSettings()})
    )
    """Endpoints by alias, as in CACHES."""
    limits: Limits = field(default_factory=Limits)
    """See Limits."""
    allowed_origins: Origins = ()
    """Origins of pages that may send requests, besides CSRF_TRUSTED_ORIGINS and pages from loopback."""
    cors_allowed_origins: Origins = ()
    """Origins of pages that may read the answers too (CORS); with DEBUG, pages from loopback may."""
    autodiscover_modules: Annotated[tuple[str, ...], _several(_module)] = ("mcp_tools",)
    """Modules looked for in every installed app when the project starts."""
    expose_internal_errors: Flag = False
    """With DEBUG: send the text of an unexpected exception to the client. Without DEBUG it is never sent."""
    token_cache_seconds: SecondsOrZero = 10.0
    """Seconds for which a worker trusts a token it has verified, so also how long a revoked one may go on."""


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


def autodiscover_modules() -> tuple[str, ...]:
    """`AUTODISCOVER_MODULES`. Read at startup, so wrong values elsewhere are left for the system checks to report."""
    return _read()[0].autodiscover_modules


def debug() -> bool:
    """Is DEBUG on?"""
    return bool(django_settings.DEBUG)


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
        if not isinstance(alias, str) or not re.fullmatch(_ALIAS, alias):
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
    names = {option.name.upper(): option.name for option in fields(cls)}
    hints = get_type_hints(cls, include_extras=True)
    values = dict(nested)
    for key, value in options.items():
        name = names.get(key) if isinstance(key, str) else None
        where = f"{path}[{_quoted(key)}]"
        if name is None:
            found.append(Problem(where, "is not an option", _closest(key, names), unknown=True))
        elif name not in nested:
            reader: Reader = hints[name].__metadata__[0]
            try:
                values[name] = reader(value)
            except _WrongValue as wrong:
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
