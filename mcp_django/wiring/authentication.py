"""Who may call: from `MCP["AUTH"]` to what authenticates the requests of a server."""

import contextlib
import functools
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

from django.core.exceptions import ImproperlyConfigured
from django.core.signals import setting_changed
from django.db import transaction
from django.dispatch import receiver
from django.utils.module_loading import import_string

from mcp_django import conf
from mcp_django.auth.authentication import principal_cache
from mcp_django.auth.authentication.authenticator import Authenticator
from mcp_django.auth.authentication.session import Sessions
from mcp_django.auth.authentication.shared_cache import Shared
from mcp_django.auth.authentication.tickets import LONGEST, Tickets
from mcp_django.auth.authentication.verifiers import Verifier, as_verifier
from mcp_django.auth.authorization.rule_cache import RULEBOOK
from mcp_django.auth.protected.registry import Resources
from mcp_django.auth.resource import ProtectedResource
from mcp_django.runtime.calls.idempotency import DatabaseLedger
from mcp_django.runtime.events.event_log import Event
from mcp_django.runtime.events.invalidation import News
from mcp_django.runtime.sealing import Seal
from mcp_django.wiring.authorization import narrow
from mcp_django.wiring.services import executor, feeds, log_executor

TOPIC, FORGET = "principals", "forget"
"""Where in the event log it is told, and as what, that principals have to be verified anew."""
VERIFIERS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "token": "mcp_django.auth.authentication.verifiers.PersonalTokenVerifier",
        "oauth": "mcp_django.contrib.oauth.tokens.verifier.verifier",
        "external": "mcp_django.wiring.external.verifiers",
    }
)
"""What makes the verifiers of a name in `MCP["AUTH"]`: called without arguments, it gives one or a list of them."""


def authenticator(server: str) -> Authenticator:
    """Who may call the server of an alias, as `MCP["AUTH"]` says."""
    settings = conf.get_settings()
    names = conf.auth_names()
    development = not names and conf.debug()
    # Without a word on authentication, development serves this machine, and whoever has a token.
    wanted = ("token",) if development else tuple(name for name in names if name not in ("none", "session"))
    return Authenticator(
        server,
        executor=executor(),
        sessions=Sessions(frozenset(settings.session_scopes), executor=executor()) if "session" in names else None,
        tickets=tickets() if wanted or "session" in names else None,
        resource_of=functools.partial(resources().of, server),
        varies=resources().varies(server),
        verifiers=[verifier for name in wanted for verifier in _verifiers(name)],
        local=development or names == ("none",),
        local_user=settings.local_user,
        remember=_trust(),
        narrow=narrow(server),
        shared=shared(),
        attended=news().attended if wanted and settings.token_cache_seconds else None,
    )


def authenticator_of(resource: ProtectedResource) -> Authenticator:
    """Who may call something else of the project with a token that was made for `resource`, by the same verifiers."""
    wanted = [name for name in conf.auth_names() if name not in ("none", "session")]
    return Authenticator(
        resource.server,
        executor=executor(),
        resource_of=lambda request: resource,
        verifiers=[verifier for name in wanted for verifier in _verifiers(name)],
        remember=_trust(),
        narrow=narrow(resource.server),
        shared=shared(),
    )


@functools.cache
def tickets() -> Tickets:
    """What opens sockets from pages."""
    return Tickets(
        Seal(conf.secret_keys(), purpose="ticket", limit=LONGEST), DatabaseLedger(executor(), aside=log_executor())
    )


@functools.cache
def shared() -> Shared | None:
    """What other processes have verified, where the settings name a cache."""
    settings = conf.get_settings()
    if settings.token_cache is None or not settings.token_cache_seconds:
        return None
    return Shared(settings.token_cache, _trust(), secret=conf.secret_keys()[0])


def _trust() -> float:
    """Seconds for which somebody is remembered in one place. What was found in the shared cache is remembered here for
    as long again, so that each has half of what the settings allow.
    """
    settings = conf.get_settings()
    return settings.token_cache_seconds / (1 if settings.token_cache is None else 2)


@functools.cache
def news() -> News:
    """What other processes say is to be verified anew. Kept whatever the settings: it hangs on the event log."""
    return News(feeds, TOPIC, hear=_hear, is_needed=principal_cache.is_fresh)


def _hear(event: Event) -> None:
    owner = event.payload.get("owner")
    if owner is None:
        RULEBOOK.forget()  # which has a part in what a principal may do
    principal_cache.forget_here(principal_cache.anybody if owner is None else principal_cache.of_user(owner))


def _tell(owner: str | None, using: str) -> None:
    if conf.auth_names() in ((), ("none",)):
        return  # whoever is remembered somewhere is the local user, for seconds
    kept = shared()
    if kept is not None:
        kept.forget(owner)
        with contextlib.suppress(transaction.TransactionManagementError):
            transaction.on_commit(lambda: kept.forget(owner), using=using, robust=True)
    feeds().publish_on_commit(news().draft(FORGET, owner=owner), using=using)


principal_cache.tell_with(_tell)


@functools.cache
def resources() -> Resources:
    """The servers as resources that tokens are made for."""
    return Resources(conf.get_settings().servers, origin=conf.origin(), issuers=conf.issuers())


def _verifiers(name: str) -> Sequence[Verifier]:
    path = VERIFIERS.get(name)
    if path is None:
        return [as_verifier(import_string(name))]
    try:
        made: Any = import_string(path)()
    except ImportError as problem:
        message = f'MCP["AUTH"] names "{name}", which cannot be served here: {problem}'
        raise ImproperlyConfigured(message) from problem
    return [as_verifier(one) for one in (made if isinstance(made, list | tuple) else [made])]


@receiver(setting_changed)
def _forget(*, setting: str, **kwargs: Any) -> None:
    if setting in {"MCP", "OAUTH2_PROVIDER", "ROOT_URLCONF", "FORCE_SCRIPT_NAME", "INSTALLED_APPS"}:
        resources.cache_clear()
    if setting in {"MCP", "SECRET_KEY"}:
        shared.cache_clear()
    if setting in {"MCP", "SECRET_KEY", "SECRET_KEY_FALLBACKS", "DATABASES"}:
        tickets.cache_clear()
