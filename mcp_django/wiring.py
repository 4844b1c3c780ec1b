"""The composition root: settings become servers. Nothing else in the package turns a dotted path of `MCP`
into an object that serves.

Everything here is made at its first use, kept for the process, and made anew when a setting it came from changes.
"""

import asyncio
import difflib
import functools
from collections.abc import Sequence
from typing import Any

from django.core.exceptions import ImproperlyConfigured
from django.core.signals import setting_changed
from django.dispatch import receiver
from django.middleware.locale import LocaleMiddleware
from django.utils.module_loading import import_string

from . import conf
from .auth.authenticate import Authenticator
from .auth.policy import Policy
from .auth.principal import FRESH, forget_rights
from .auth.verifiers import PersonalTokenVerifier, Verifier, as_verifier
from .conf.options import Limits, ServerSettings
from .conf.project import middleware
from .exceptions import translate
from .forms.questions import form_question
from .orm.generic import GenericTools
from .protocol.revisions import Era
from .protocol.types import Implementation
from .providers.stored import StoredProvider
from .runtime.afterwards import CountedPlaces
from .runtime.call_streams import ProcessStreams
from .runtime.event_ids import EventIds
from .runtime.executor import LaneExecutor
from .runtime.feeds import Feeds
from .runtime.hub import find_layer
from .runtime.lifecycle import Lifecycle
from .runtime.list_watch import ListWatch
from .runtime.lists import SessionLists
from .runtime.observer import CallObserver
from .runtime.once import DatabaseLedger
from .runtime.pages import SitePages
from .runtime.posts import ProcessPosts
from .runtime.replies import LoggedReplies
from .runtime.rings import Bounds
from .runtime.seal import Seal, Stamp
from .runtime.sessions import DatabaseSessions
from .runtime.subscriptions import Listens, LoggedChanges
from .runtime.tracing import find_tracing
from .server.ask import AskLimits
from .server.providers import Provider
from .server.registry import registry_for
from .server.server import Options, Ports, Server

LOG_LANES = 2
"""One may wait for its turn to append while the other reads."""


def aliases() -> Sequence[str]:
    """The servers that `MCP["SERVERS"]` describes, the default one first."""
    return sorted(conf.get_settings().servers, key=lambda alias: (alias != "default", alias))


def get_server(alias: str = "default") -> Server:
    """The server of an alias, with what autodiscovery found. Raises ImproperlyConfigured for an unknown alias."""
    return _make_server(alias)


# Behind the function, because a cache takes a default that is written and one that is not for two.
@functools.cache
def _make_server(alias: str) -> Server:
    settings = conf.get_settings()
    described = settings.servers.get(alias)
    if described is None:
        near = difflib.get_close_matches(alias, settings.servers, n=1)
        hint = f'; did you mean "{near[0]}"?' if near else ""
        raise ImproperlyConfigured(f'MCP["SERVERS"] has no server "{alias}"{hint}')
    info = Implementation(
        described.name,
        described.version,
        title=described.title,
        description=described.description,
        website_url=described.website_url,
    )
    options = Options(
        require_session=described.require_session,
        page_size=described.page_size,
        timeout=described.timeout,
        atomic=conf.atomic_databases(),
        log_level=described.log_level,
        cache_ttl=described.cache_ttl,
        private=settings.auth not in ((), ("none",)),
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
    return Server(
        info,
        alias=alias,
        instructions=described.instructions,
        eras=tuple(Era(name) for name in described.eras),
        registry=registry_for(alias),
        providers=_providers(alias, described),
        middleware=[import_string(path) for path in described.middleware],
        lifespan=import_string(described.lifespan) if described.lifespan else None,
        options=options,
        ports=ports(alias),
    )


def _providers(alias: str, described: ServerSettings) -> list[Provider]:
    """The verbs of model toolsets that are no tools by themselves, what the settings name, and stored rows."""
    generic: list[Provider] = [GenericTools(registry_for(alias))] if conf.orm_style() == "generic" else []
    stored: list[Provider] = [StoredProvider(alias)] if described.stored else []
    return [*generic, *map(_provider, described.providers), *stored]


@functools.cache
def executor() -> LaneExecutor:
    """The lanes of this process, shared by all servers."""
    settings = conf.get_settings()
    limits = settings.limits
    return LaneExecutor(
        lanes=limits.lanes,
        queue=limits.lane_queue,
        parked=limits.waiting_threads,
        interrupt=settings.interrupt_sql,
    )


@functools.cache
def lifecycle() -> Lifecycle:
    """The end of this process. Kept whatever the settings: signal handlers know it."""
    return Lifecycle(grace=lambda: conf.get_settings().limits.shutdown_grace, close_lanes=_close)


def _close(loop: asyncio.AbstractEventLoop) -> None:
    """End what the loop of a process that shuts down has threads and connections for."""
    feeds().close(loop)
    log_executor().close(loop)
    executor().close(loop)


@functools.cache
def background_places() -> CountedPlaces:
    """The places of this process for work after the answer. Kept whatever the settings: work hangs on it."""
    return CountedPlaces(lambda: conf.get_settings().limits.background)


@functools.cache
def log_executor() -> LaneExecutor:
    """Lanes for the event log alone. On those of calls it would wait for handlers, of which some wait for the log."""
    return LaneExecutor(lanes=LOG_LANES, interrupt=False, name="mcp-log")


@functools.cache
def feeds() -> Feeds:
    """The way into the event log and out of it. Kept whatever the settings: streams hang on it."""
    return Feeds(
        executor=log_executor,
        layer=lambda: find_layer(conf.get_settings().channel_layer),
        keep=lambda: conf.get_settings().limits.event_ttl,
        watch=lambda feeds: ListWatch(
            feeds.publish, server=get_server, executor=executor, forget_rights=forget_rights, settled_after=FRESH
        ),
    )


@functools.cache
def call_streams() -> ProcessStreams:
    """The streams of calls that clients of sessions can go on with. Kept whatever the settings: streams hang on it."""
    return ProcessStreams(feeds(), lifecycle(), _bounds)


@functools.cache
def posts() -> ProcessPosts:
    """The streams of HTTP+SSE here, and the way to those elsewhere. Kept whatever the settings: streams hang on it."""
    return ProcessPosts(feeds(), log_executor())


def _bounds() -> Bounds:
    limits = conf.get_settings().limits
    return Bounds(limits.events, limits.unsent, limits.unsent_wait, limits.event_ttl)


@functools.cache
def event_ids() -> EventIds:
    """The ids of events on the streams of sessions."""
    return EventIds(Stamp(conf.secret_keys(), purpose="event"))


@functools.cache
def listens() -> Listens:
    """The open streams of this process that are no calls, of all servers."""
    limits = conf.get_settings().limits
    return Listens(limits.listens, limits.listens_per_owner)


@functools.cache
def pages() -> SitePages:
    """The pages that people are sent to, and come back from."""
    return SitePages(conf.secret_keys(), executor=log_executor, feeds=feeds)


def ports(alias: str = "default") -> Ports:
    """The Django side of one server."""
    return _make_ports(alias)


@functools.cache
def _make_ports(alias: str) -> Ports:
    limits = conf.get_settings().limits
    return Ports(
        authorizer=Policy(executor()),
        executor=executor(),
        sessions=DatabaseSessions(executor(), server=alias, feeds=feeds),
        state_sealer=Seal(conf.secret_keys(), purpose="state", limit=limits.state_bytes),
        cursor_sealer=Seal(conf.secret_keys(), purpose="cursor"),
        ledger=DatabaseLedger(executor(), aside=log_executor()),
        replies=LoggedReplies(feeds, Stamp(conf.secret_keys(), purpose="question"), wait=limits.question_wait),
        translate=translate,
        observer=CallObserver(executor(), find_tracing()),
        background=background_places(),
        changes=LoggedChanges(alias, feeds=feeds(), executor=executor(), listens=listens(), most=limits.subscriptions),
        lists=SessionLists(executor()),
        forms=form_question,
        pages=pages(),
    )


def negotiates_language() -> bool:
    """Does the project choose the language of its answers by what the client says (LocaleMiddleware)?"""
    if not conf.uses_i18n():
        return False
    return any(isinstance(found, type) and issubclass(found, LocaleMiddleware) for _, found in middleware())


def authenticator(server: str) -> Authenticator:
    """Who may call the server of an alias, as `MCP["AUTH"]` says."""
    settings = conf.get_settings()
    names, development = settings.auth, not settings.auth and conf.debug()
    # Without a word on authentication, development serves this machine, and whoever has a token.
    wanted = ("token",) if development else tuple(name for name in names if name != "none")
    return Authenticator(
        server,
        executor=executor(),
        verifiers=[_verifier(name) for name in wanted],
        local=development or names == ("none",),
        local_user=settings.local_user,
        remember=settings.token_cache_seconds,
    )


def _verifier(name: str) -> Verifier:
    return PersonalTokenVerifier() if name == "token" else as_verifier(import_string(name))


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
        raise ImproperlyConfigured(f"{path} is no provider; it must be a mcp_django.Provider, or give one when called")
    return found


@receiver(setting_changed)
def _forget(*, setting: str, **kwargs: Any) -> None:
    if setting in {"MCP", "SECRET_KEY", "SECRET_KEY_FALLBACKS", "DEBUG", "DATABASES"}:
        for made in (_make_server, _make_ports, executor, event_ids, listens, pages):
            made.cache_clear()
