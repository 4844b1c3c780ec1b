"""Options of a proxy: an entry of `PROXIES`, with its derived values."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

from django.core.exceptions import ImproperlyConfigured
from django.utils.module_loading import import_string

from mcp_django.conf.proxies import ANY_CALLER, CLIENT_FEATURES, FEATURES
from mcp_django.extensions.errors import DeclarationError
from mcp_django.extensions.primitives import Permission, Rate


@dataclass(frozen=True, slots=True, kw_only=True)
class ProxyOptions:
    """Options of a proxy, as described in `conf.proxies.ProxySettings`.

    Here `permission` and `credentials` may be functions. Raises DeclarationError for a string instead of a list, and
    for an unknown value of `features` or `client_features`.
    """

    prefix: str | None = None
    uri_prefix: str | None = None
    permission: Any = None
    scopes: Sequence[str] = ()
    allow: Sequence[str] = ("*",)
    deny: Sequence[str] = ()
    features: Sequence[str] = FEATURES
    client_features: Sequence[str] = CLIENT_FEATURES
    logs: bool = True
    rate: Rate | str | None = None
    timeout: float | None = None
    list_timeout: float = 5.0
    stale_ttl: float = 300.0
    credentials: Any = None
    sessions: int = 32
    suspended_calls: int = 100
    suspended_call_ttl: float = 300.0

    def __post_init__(self) -> None:
        for name in ("scopes", "allow", "deny", "features", "client_features"):
            given = getattr(self, name)
            if isinstance(given, str):
                raise DeclarationError(f"{name} must be a list; write {name}=[{given!r}]")
        for name, known in (("features", FEATURES), ("client_features", CLIENT_FEATURES)):
            for one in getattr(self, name):
                if one not in known:
                    raise DeclarationError(f"{name} contains {one!r}; use values of {', '.join(known)}")

    def is_allowed(self, name: str) -> bool:
        """Return True if the tool or prompt with this remote name is served."""
        return any(fnmatchcase(name, pattern) for pattern in self.allow) and not any(
            fnmatchcase(name, pattern) for pattern in self.deny
        )

    @property
    def effective_permission(self) -> Permission | None:
        """Permission of all served primitives; closed without permission and scopes."""
        given = self.permission
        if given is None:
            return None if self.scopes else deny_everyone
        if given == ANY_CALLER:
            return None
        return _import_function(given) if isinstance(given, str) and given.count(".") > 1 else given

    @property
    def headers_function(self) -> Callable[..., Any] | None:
        """Function that returns the headers of a caller."""
        given = self.credentials
        return _import_function(given) if isinstance(given, str) else given

    @property
    def parsed_rate(self) -> Rate | None:
        """Maximum rate of calls of one tool by one caller."""
        return Rate.parse(self.rate) if isinstance(self.rate, str) else self.rate


def deny_everyone(principal: Any) -> bool:
    """Refuse every principal; only the local principal bypasses permissions."""
    return False


def _import_function(path: str) -> Callable[..., Any]:
    if not re.fullmatch(r"[\w.]+", path):
        raise ImproperlyConfigured(f"{path!r} is not a dotted path")
    found: Any = import_string(path)
    if not callable(found):
        raise ImproperlyConfigured(f"{path} is not a function")
    function: Callable[..., Any] = found
    return function
