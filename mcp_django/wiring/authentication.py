"""Authentication of each server, built from `MCP["AUTH"]`."""

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
"""Topic and name of events in the event log that invalidate cached principals."""
VERIFIERS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "token": "mcp_django.auth.authentication.verifiers.PersonalTokenVerifier",
        "oauth": "mcp_django.contrib.oauth.tokens.verifier.verifier",
        "external": "mcp_django.wiring.external.verifiers",
    }
)
"""Factories of the verifiers named in `MCP["AUTH"]`.

Each returns one verifier or a list.
"""


def authenticator(server: str) -> Authenticator:
    """Create the authenticator of a server from `MCP["AUTH"]`."""
    settings = conf.get_settings()
    names = conf.auth_names()
    development = not names and conf.debug()
    # Without `AUTH`, development serves local clients and bearers of tokens.
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
    """Create an authenticator for another API, with tokens for `resource`."""
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
    """Return the tickets that authenticate WebSockets of pages."""
    return Tickets(
        Seal(conf.secret_keys(), purpose="ticket", limit=LONGEST), DatabaseLedger(executor(), aside=log_executor())
    )


@functools.cache
def shared() -> Shared | None:
    """Return the cache shared with other processes, if the settings name one."""
    settings = conf.get_settings()
    if settings.token_cache is None or not settings.token_cache_seconds:
        return None
    return Shared(settings.token_cache, _trust(), secret=conf.secret_keys()[0])


def _trust() -> float:
    """Return the seconds for which a principal is cached in one place.

    An entry of the shared cache is cached here for as long again, so each place gets half of the setting.
    """
    settings = conf.get_settings()
    return settings.token_cache_seconds / (1 if settings.token_cache is None else 2)


@functools.cache
def news() -> News:
    """Return the topic of invalidations by other processes.

    It survives changes of settings, because the event log uses it.
    """
    return News(feeds, TOPIC, hear=_hear, is_needed=principal_cache.is_fresh)


def _hear(event: Event) -> None:
    owner = event.payload.get("owner")
    if owner is None:
        RULEBOOK.forget()  # rules affect the permissions of every principal
    principal_cache.forget_here(principal_cache.anybody if owner is None else principal_cache.of_user(owner))


def _tell(owner: str | None, using: str) -> None:
    if conf.auth_names() in ((), ("none",)):
        return  # only the local user is cached, for seconds
    kept = shared()
    if kept is not None:
        kept.forget(owner)
        with contextlib.suppress(transaction.TransactionManagementError):
            transaction.on_commit(lambda: kept.forget(owner), using=using, robust=True)
    feeds().publish_on_commit(news().draft(FORGET, owner=owner), using=using)


principal_cache.tell_with(_tell)


@functools.cache
def resources() -> Resources:
    """Return the registry of protected resources, one for each server."""
    return Resources(conf.get_settings().servers, origin=conf.origin(), issuers=conf.issuers())


def _verifiers(name: str) -> Sequence[Verifier]:
    path = VERIFIERS.get(name)
    if path is None:
        return [as_verifier(import_string(name))]
    try:
        made: Any = import_string(path)()
    except ImportError as problem:
        message = f'MCP["AUTH"] contains "{name}", which is unavailable: {problem}'
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
