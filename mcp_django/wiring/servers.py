"""Servers of `MCP["SERVERS"]`, created at first use.

A change of settings recreates them.
"""

import contextlib
import difflib
import functools
import logging
import threading
from collections.abc import Iterator, Sequence
from typing import Any

from django.core.exceptions import ImproperlyConfigured
from django.core.signals import setting_changed
from django.dispatch import receiver
from django.middleware.locale import LocaleMiddleware
from django.utils.module_loading import import_string

from mcp_django import conf
from mcp_django.auth.requests import AuthRequest
from mcp_django.conf.options import Limits, ServerSettings
from mcp_django.conf.project import middleware
from mcp_django.exceptions import translate
from mcp_django.forms.questions import form_question
from mcp_django.orm.generic import GenericTools
from mcp_django.protocol.headers import Headers
from mcp_django.protocol.revisions import Era
from mcp_django.protocol.types import Implementation
from mcp_django.providers.stored import StoredProvider
from mcp_django.runtime.calls.idempotency import DatabaseLedger
from mcp_django.runtime.calls.observer import CallObserver
from mcp_django.runtime.calls.pending_requests import LoggedReplies
from mcp_django.runtime.calls.tracing import find_tracing
from mcp_django.runtime.sealing import Seal, Stamp
from mcp_django.runtime.sessions.list_digests import SessionLists
from mcp_django.runtime.sessions.store import DatabaseSessions
from mcp_django.runtime.subscriptions import LoggedChanges
from mcp_django.server.calls.call import Connection
from mcp_django.server.client_requests.conversation import AskLimits
from mcp_django.server.composition.provider import Provider, in_order
from mcp_django.server.primitives.registry import registry_for
from mcp_django.server.server import Options, Ports, Server
from mcp_django.wiring import composition
from mcp_django.wiring.authentication import resources
from mcp_django.wiring.authorization import policy
from mcp_django.wiring.services import background_places, executor, feeds, lifecycle, listens, log_executor, pages

logger = logging.getLogger("mcp_django.auth")


def aliases() -> Sequence[str]:
    """Return the aliases of `MCP["SERVERS"]`, the default one first."""
    return sorted(conf.get_settings().servers, key=lambda alias: (alias != "default", alias))


def get_server(alias: str = "default") -> Server:
    """Return the server of an alias, with autodiscovered primitives.

    Raises ImproperlyConfigured for an unknown alias.
    """
    return _make_server(alias)


# Separate from the public function, because a cache has two keys for a default given explicitly or omitted.
@functools.cache
def _make_server(alias: str) -> Server:
    settings = conf.get_settings()
    described = settings.servers.get(alias)
    if described is None:
        near = difflib.get_close_matches(alias, settings.servers, n=1)
        hint = f'; did you mean "{near[0]}"?' if near else ""
        raise ImproperlyConfigured(f'MCP["SERVERS"] has no server "{alias}"{hint}')

    with _made(alias):
        mounts = composition.mounts(alias, described, get_server)
    info = Implementation(
        described.name,
        described.version,
        title=described.title,
        description=described.description,
        icons=described.icons,
        website_url=described.website_url,
    )

    options = Options(
        require_session=described.require_session,
        page_size=described.page_size,
        timeout=described.timeout,
        atomic=conf.atomic_databases(),
        log_level=described.log_level,
        cache_ttl=described.cache_ttl,
        private=conf.auth_names() not in ((), ("none",)),
        capabilities=described.capabilities,
        expose_errors=settings.expose_internal_errors and conf.debug(),
        batch=settings.limits.batch,
        subscriptions=settings.limits.subscriptions,
        ask=_ask_limits(settings.limits),
        transports=described.transports,
        healthz=described.healthz,
        enable_get=described.enable_get,
        allow_delete=described.allow_delete,
    )

    server = Server(
        info,
        alias=alias,
        instructions=described.instructions,
        eras=tuple(Era(name) for name in described.eras),
        registry=registry_for(alias),
        providers=_providers(alias, described),
        mounts=mounts,
        proxies=composition.proxies(alias, described),
        middleware=[import_string(path) for path in described.middleware],
        lifespan=import_string(described.lifespan) if described.lifespan else None,
        options=options,
        ports=ports(alias),
    )
    if described.stored:
        # Stored prompts and resources come last, after everything of the project and its mounts.
        server.providers = in_order((*server.providers, StoredProvider(alias)))
    return server


@contextlib.contextmanager
def _made(alias: str) -> Iterator[None]:
    """Detect cycles of mounts.

    Raises ImproperlyConfigured for a server that is mounted in itself.
    """
    before: tuple[str, ...] = getattr(_making, "aliases", ())
    if alias in before:
        way = " → ".join((*before[before.index(alias) :], alias))
        raise ImproperlyConfigured(f"the mounts form a cycle: {way}")
    _making.aliases = (*before, alias)
    try:
        yield
    finally:
        _making.aliases = before


_making = threading.local()
"""Aliases of the servers that this thread is creating, outermost first."""


def _providers(alias: str, described: ServerSettings) -> list[Provider]:
    """Create the providers: generic model tools, and those of the settings."""
    generic: list[Provider] = [GenericTools(registry_for(alias))] if conf.orm_style() == "generic" else []
    return [*generic, *map(_provider, described.providers)]


def ports(alias: str = "default") -> Ports:
    """Return the ports that connect a server to Django."""
    return _make_ports(alias)


@functools.cache
def _make_ports(alias: str) -> Ports:
    limits = conf.get_settings().limits
    return Ports(
        authorizer=policy(alias),
        executor=executor(),
        sessions=DatabaseSessions(executor(), server=alias, feeds=feeds),
        state_sealer=Seal(conf.secret_keys(), purpose="state", limit=limits.state_bytes),
        cursor_sealer=Seal(conf.secret_keys(), purpose="cursor"),
        ledger=DatabaseLedger(executor(), aside=log_executor()),
        replies=LoggedReplies(feeds, Stamp(conf.secret_keys(), purpose="question"), wait=limits.question_wait),
        translate=translate,
        observer=CallObserver(executor(), find_tracing()),
        background=background_places(),
        at_end=lambda work: lifecycle().at_end(work),
        changes=LoggedChanges(alias, feeds=feeds(), executor=executor(), listens=listens(), most=limits.subscriptions),
        lists=SessionLists(executor()),
        forms=form_question,
        pages=pages(),
        required_scopes=functools.partial(_required_scopes, alias),
    )


def _required_scopes(alias: str, connection: Connection) -> Sequence[str]:
    """Return the scopes that a server requires of a caller.

    The result is empty if they cannot be computed.
    """
    request = AuthRequest(connection.headers or Headers(), kwargs=connection.kwargs)
    try:
        return resources().of(alias, request).scopes
    except Exception:
        # REQUIRED_SCOPES can be a function of the project. The caller is already authenticated, and still gets the
        # scopes of the operation.
        logger.exception("Computing the required scopes of server %r failed", alias)
        return ()


def negotiates_language() -> bool:
    """Return True if the project uses LocaleMiddleware to select the language."""
    if not conf.uses_i18n():
        return False
    return any(isinstance(found, type) and issubclass(found, LocaleMiddleware) for _, found in middleware())


def _ask_limits(limits: Limits) -> AskLimits:
    return AskLimits(
        wait=limits.question_wait,
        page_wait=limits.page_wait,
        answers=limits.answers,
        rounds=limits.rounds,
        stale_rounds=limits.stale_rounds,
        ttl=limits.state_ttl,
    )


def _provider(path: str) -> Provider:
    found: Any = import_string(path)
    if not isinstance(found, Provider) and callable(found):
        found = found()
    if not isinstance(found, Provider):
        raise ImproperlyConfigured(
            f"{path} is not a provider; name a mcp_django.Provider, or a function that returns one"
        )
    return found


@receiver(setting_changed)
def _forget(*, setting: str, **kwargs: Any) -> None:
    if setting in {"MCP", "SECRET_KEY", "SECRET_KEY_FALLBACKS", "DEBUG", "DATABASES"}:
        for made in (_make_server, _make_ports):
            made.cache_clear()
