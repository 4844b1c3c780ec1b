"""The composition root: settings become servers, which are rebuilt when a setting changes."""

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator
from dataclasses import fields
from typing import Any

import pytest
from django.core.checks import CheckMessage, Warning
from django.core.exceptions import ImproperlyConfigured
from django.db import connection
from django.test import override_settings

from mcp_django import conf, wiring
from mcp_django.auth.authentication.authenticator import Authenticator
from mcp_django.auth.authentication.verifiers import PersonalTokenVerifier
from mcp_django.auth.authorization.rule_cache import RULE_CACHE
from mcp_django.auth.principal import DjangoPrincipal
from mcp_django.auth.resource import ProtectedResource
from mcp_django.checks.declarations import check_composition
from mcp_django.conf.options import Limits, ServerSettings
from mcp_django.extensions import Extension
from mcp_django.lowlevel import Handlers
from mcp_django.protocol.errors import InvalidParams
from mcp_django.protocol.revisions import LATEST, Era
from mcp_django.providers import Provider
from mcp_django.providers.stored import StoredProvider
from mcp_django.runtime.events.event_log import EventDraft
from mcp_django.server.options import ConversationLimits, ServerOptions
from mcp_django.server.primitives.registry import get_registry
from mcp_django.transports.http.handler import get_http_endpoint
from tests.runtime.serving import start_call


async def middleware(call: Any, call_next: Any) -> Any:
    return await call_next(call)


@contextlib.asynccontextmanager
async def lifespan(server: Any) -> AsyncIterator[str]:
    yield server.alias


class BookProvider(Provider):
    """A provider class whose constructor has no arguments."""


book_provider = BookProvider()


def make_book_provider() -> Provider:
    return book_provider


handlers = Handlers()
not_a_provider = 7


class Verifier:
    async def verify(self, token: str, *, resource: ProtectedResource) -> DjangoPrincipal:
        raise NotImplementedError


MODULE = "tests.wiring.test_wiring"


@override_settings(MCP={"SERVERS": {"default": {}, "staff": {}}})
def test_an_unknown_alias_is_refused_with_a_suggestion(subtests: pytest.Subtests) -> None:
    for alias, hint in (("defualt", 'did you mean "default"'), ("stff", 'did you mean "staff"'), ("zzz", '"zzz"$')):
        with subtests.test(alias=alias, hint=hint), pytest.raises(ImproperlyConfigured, match=hint):
            wiring.get_server(alias)


@override_settings(MCP={"SERVERS": {"zoo": {}, "default": {}, "bar": {}}})
def test_the_default_server_comes_first() -> None:
    assert list(wiring.list_aliases()) == ["default", "bar", "zoo"]


def test_a_server_has_the_options_of_its_setting() -> None:
    described = {
        "NAME": "hotel",
        "VERSION": "3",
        "TITLE": "The hotel",
        "DESCRIPTION": "Rooms",
        "WEBSITE_URL": "https://example.com",
        "INSTRUCTIONS": "Ask nicely",
        "ERAS": ["stateless"],
        "PAGE_SIZE": 7,
        "TIMEOUT": 8,
        "LOG_LEVEL": "error",
        "CACHE_TTL": 9,
        "MIDDLEWARE": [f"{MODULE}.middleware"],
        "PROVIDERS": [f"{MODULE}.handlers", f"{MODULE}.BookProvider", f"{MODULE}.make_book_provider"],
        "LIFESPAN": f"{MODULE}.lifespan",
        "CAPABILITIES": {"experimental": {"x": {}}},
    }
    limits = {
        "ELICITATION_TIMEOUT": 1,
        "URL_ELICITATION_TIMEOUT": 2,
        "STATE_TTL": 5,
        "RESULT_BYTES": 6,
        "SUBSCRIPTIONS": 7,
    }
    with override_settings(MCP={"SERVERS": {"default": {}, "hotel": described}, "LIMITS": limits}):
        server = wiring.get_server("hotel")
        info = (server.info.name, server.info.version, server.info.title, server.info.description)
        assert info == ("hotel", "3", "The hotel", "Rooms")
        assert (server.info.website_url, server.instructions) == ("https://example.com", "Ask nicely")
        assert server.eras == (Era.STATELESS,)
        options = server.options
        assert (options.page_size, options.timeout, options.log_level, options.cache_ttl) == (7, 8, "error", 9)
        ask = options.conversation_limits
        assert (ask.elicitation_timeout, ask.url_elicitation_timeout, ask.state_ttl) == (1, 2, 5)
        assert (options.result_bytes, options.subscriptions) == (6, 7)
        assert server.middleware == (middleware,)
        assert [type(provider) for provider in server.providers] == [
            Handlers,
            BookProvider,
            BookProvider,
            StoredProvider,
        ]
        assert server.providers[0] is handlers
        assert server.providers[2] is book_provider
        assert server.has_lifespan
        assert server.capabilities(LATEST)["experimental"] == {"x": {}}
        assert server.registry is get_registry("hotel")


@override_settings(MCP={"SERVERS": {"default": {}, "bare": {"STORED": False}}})
def test_a_server_serves_stored_rows_by_default() -> None:
    assert [type(provider) for provider in wiring.get_server().providers] == [StoredProvider]
    assert wiring.get_server("bare").providers == ()


def values_of(options: Any) -> dict[str, Any]:
    """Map the names of a dataclass's fields to their values."""
    return {option.name: getattr(options, option.name) for option in fields(options)}


def test_the_engine_and_the_settings_have_the_same_defaults() -> None:
    engine = values_of(ServerOptions()) | values_of(ConversationLimits())
    written = values_of(ServerSettings()) | values_of(Limits())
    shared = engine.keys() & written.keys() - {"around", "capabilities"}
    assert len(shared) == 14
    assert {name: written[name] for name in shared} == {name: engine[name] for name in shared}


@override_settings(MCP={"LIMITS": {"BATCH": 4}})
def test_a_fixed_limit_is_an_unknown_key() -> None:
    assert [(problem.path, problem.unknown) for problem in conf.get_problems()] == [('MCP["LIMITS"]["BATCH"]', True)]


@override_settings(MCP={"SERVERS": {"default": {"PROVIDERS": [f"{MODULE}.not_a_provider"]}}})
def test_objects_that_are_not_providers_are_refused_with_their_path() -> None:
    with pytest.raises(ImproperlyConfigured, match=r"tests\.wiring\.test_wiring\.not_a_provider is not a provider"):
        wiring.get_server()


class Audit(Extension):
    identifier = "com.example/audit"

    def check(self) -> list[CheckMessage]:
        return [Warning("The audit has no table.", id="audit.W001")]


audit = Audit()


@override_settings(
    MCP={"SERVERS": {"default": {"EXTENSIONS": [f"{MODULE}.audit"]}, "other": {"EXTENSIONS": [f"{MODULE}.Audit"]}}}
)
def test_extensions_are_instances_or_classes_and_add_their_checks() -> None:
    assert wiring.get_server().extensions.extensions == (audit,)
    (made,) = wiring.get_server("other").extensions.extensions
    assert type(made) is Audit
    assert [message.id for message in check_composition(None)] == ["audit.W001", "audit.W001"]


@override_settings(MCP={"SERVERS": {"default": {"EXTENSIONS": [f"{MODULE}.not_a_provider"]}}})
def test_objects_that_are_not_extensions_are_refused_and_reported() -> None:
    with pytest.raises(ImproperlyConfigured, match=r"tests\.wiring\.test_wiring\.not_a_provider is not an extension"):
        wiring.get_server()
    (message,) = check_composition(None)
    assert message.id == "mcp_django.E060"


@override_settings(MCP={"SERVERS": {"default": {"MIDDLEWARE": [f"{MODULE}.missing"]}}})
def test_an_invalid_path_is_an_import_error() -> None:
    with pytest.raises(ImportError, match="missing"):
        wiring.get_server()


def test_every_object_is_built_once() -> None:
    assert wiring.get_server() is wiring.get_server("default") is wiring.get_server(alias="default")
    assert wiring.get_services().executor is wiring.get_services().executor
    assert wiring.get_ports() is wiring.get_ports("default")
    assert get_http_endpoint() is get_http_endpoint("default")
    assert wiring.get_server().ports.executor is wiring.get_services().executor


def test_changed_settings_rebuild_servers_threads_and_ports(subtests: pytest.Subtests) -> None:
    for changed in (
        {"MCP": {"SERVERS": {"default": {"NAME": "other"}}}},
        {"SECRET_KEY": "other"},
        {"SECRET_KEY_FALLBACKS": ["other"]},
        {"DEBUG": True},
    ):
        with subtests.test(changed=changed):
            before = wiring.get_server(), wiring.get_services().executor, wiring.get_ports(), get_http_endpoint()
            with override_settings(**changed):
                after = wiring.get_server(), wiring.get_services().executor, wiring.get_ports(), get_http_endpoint()
                assert not any(old is new for old, new in zip(before, after, strict=True))
                assert after[0].registry is before[0].registry
                assert get_http_endpoint()._server is after[0]


def test_a_changed_setting_drops_the_servers_and_the_endpoints(subtests: pytest.Subtests) -> None:
    for setting in ("ALLOWED_HOSTS", "CSRF_TRUSTED_ORIGINS", "LOCALE_PATHS"):
        with subtests.test(setting=setting):
            before = wiring.get_services(), wiring.get_server(), get_http_endpoint()
            with override_settings(**{setting: ["https://example.com"]}):
                after = wiring.get_services(), wiring.get_server(), get_http_endpoint()
            assert not any(old is new for old, new in zip(before, after, strict=True))


def test_threads_and_followers_of_the_process_survive_a_change_and_get_its_values() -> None:
    before = wiring.get_services()
    with override_settings(
        MCP={"LIMITS": {"SHUTDOWN_GRACE": 3, "EVENT_TTL": 7, "BACKGROUND": 5}, "CHANNEL_LAYER": None}
    ):
        after = wiring.get_services()
        assert after.process is before.process is wiring.PROCESS
        assert (after.lifecycle.grace_seconds, after.event_publisher.retention_seconds) == (3, 7)
        assert after.background_slots.limit == 5
    wiring.get_services()
    assert wiring.PROCESS.lifecycle.grace_seconds == before.settings.limits.shutdown_grace


@pytest.mark.django_db(transaction=True)
def test_an_open_subscription_receives_events_after_a_change_of_settings() -> None:
    async def main() -> None:
        received: asyncio.Queue[str] = asyncio.Queue()
        services = wiring.get_services()
        await services.event_publisher.get_follower().subscribe("a", lambda event: received.put_nowait(event.kind))
        with override_settings(MCP={"SERVERS": {"default": {"NAME": "other"}}}):
            assert wiring.get_services() is not services
            await wiring.get_services().event_publisher.publish(EventDraft("a", "message"))
            async with asyncio.timeout(60):
                assert await received.get() == "message"
        await asyncio.to_thread(wiring.process.close_threads, asyncio.get_running_loop())

    asyncio.run(main())


@override_settings(MCP={"LIMITS": {"BODY": "much"}})
def test_the_process_needs_no_valid_settings() -> None:
    async def find_draining() -> bool:
        return wiring.PROCESS.lifecycle.is_draining()

    assert asyncio.run(find_draining()) is False
    with pytest.raises(ImproperlyConfigured, match="BODY"):
        wiring.get_services()


def test_services_are_built_once_by_concurrent_threads() -> None:
    wiring.process.drop_services()
    start = threading.Barrier(4)

    def build(found: list[Any]) -> None:
        start.wait()
        found.append((wiring.get_services(), wiring.get_server(), get_http_endpoint()))

    found: list[Any] = []
    threads = [threading.Thread(target=build, args=(found,)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 4
    assert len(set(found)) == 1


def test_sealed_state_and_cursors_are_not_interchangeable() -> None:
    ports = wiring.get_ports()
    token = ports.state_sealer.seal({"a": 1}, b"", ttl=60)
    assert ports.state_sealer.unseal(token, b"") == {"a": 1}
    with pytest.raises(InvalidParams):
        ports.cursor_sealer.unseal(token, b"")


def test_values_sealed_with_an_old_key_open_while_it_is_a_fallback() -> None:
    with override_settings(SECRET_KEY="old"):
        token = wiring.get_ports().state_sealer.seal({"a": 1}, b"", ttl=60)
    with override_settings(SECRET_KEY="new", SECRET_KEY_FALLBACKS=["old"]):
        assert wiring.get_ports().state_sealer.unseal(token, b"") == {"a": 1}
    with override_settings(SECRET_KEY="new"), pytest.raises(InvalidParams):
        wiring.get_ports().state_sealer.unseal(token, b"")


def kinds(found: Authenticator) -> tuple[list[str], bool]:
    """Return its verifiers, and whether it serves this machine."""
    verifiers = ["token" if isinstance(one, PersonalTokenVerifier) else "own" for one in found._verifiers]
    return verifiers, found._local is not None


def test_every_form_of_auth_becomes_an_authenticator(subtests: pytest.Subtests) -> None:
    cases = (
        (None, False, [], False),
        (None, True, ["token"], True),
        ("none", False, [], True),
        ("none", True, [], True),
        ("token", False, ["token"], False),
        ("token", True, ["token"], False),
        (f"{MODULE}.Verifier", True, ["own"], False),
        ([f"{MODULE}.Verifier", "token"], False, ["own", "token"], False),
    )
    for auth, debug, verifiers, local in cases:
        with subtests.test(auth=auth, debug=debug, verifiers=verifiers, local=local):
            options = {"AUTH": auth, "TOKEN_CACHE_SECONDS": 3, "LOCAL_USER": "ada"}
            with override_settings(MCP=options, OAUTH2_PROVIDER={}, DEBUG=debug):
                found = wiring.create_authenticator("default")
            assert kinds(found) == (verifiers, local)
            assert (found._server, found._cache._seconds) == ("default", 3)
            assert found._local is None or found._local._username == "ada"


def test_lists_are_private_where_callers_are_authenticated(subtests: pytest.Subtests) -> None:
    for auth, private in ((None, False), ("none", False), ("token", True)):
        with (
            subtests.test(auth=auth, private=private),
            override_settings(MCP={"AUTH": auth}, OAUTH2_PROVIDER={}),
        ):
            assert wiring.get_server().options.private_lists is private


def test_with_an_authorization_server_auth_needs_no_setting(subtests: pytest.Subtests) -> None:
    for debug in (True, False):
        with subtests.test(debug=debug):
            with override_settings(MCP={}, DEBUG=debug):
                assert conf.auth_names() == ("oauth", "token")
                assert wiring.create_authenticator("default")._local is None
                assert wiring.get_server().options.private_lists is True
            with override_settings(MCP={"AUTH": "token"}):
                assert conf.auth_names() == ("token",)


def test_the_text_of_bugs_needs_both_settings(subtests: pytest.Subtests) -> None:
    for expose, debug, exposed in ((True, True, True), (True, False, False), (False, True, False)):
        with (
            subtests.test(expose=expose, debug=debug, exposed=exposed),
            override_settings(MCP={"EXPOSE_INTERNAL_ERRORS": expose}, DEBUG=debug),
        ):
            assert wiring.get_server().options.expose_errors is exposed


@override_settings(MCP={"LIMITS": {"THREADS": 3, "THREAD_QUEUE": 4}})
def test_limits_reach_the_threads() -> None:
    assert (wiring.get_services().executor.max_threads, wiring.get_services().executor.max_queued) == (3, 4)


def test_the_threads_interrupt_sql_by_default(subtests: pytest.Subtests) -> None:
    for interrupt in (True, False):
        with (
            subtests.test(interrupt=interrupt),
            override_settings(MCP={} if interrupt else {"INTERRUPT_SQL": False}),
        ):
            assert wiring.get_services().executor.interrupts_sql is interrupt


@pytest.mark.filterwarnings("ignore:Overriding setting DATABASES")
def test_handlers_inherit_atomic_requests() -> None:
    with override_settings(DATABASES={"default": {}, "b": {"ATOMIC_REQUESTS": True}}):
        assert wiring.get_server().options.atomic == ("b",)
    assert wiring.get_server().options.atomic == ()


@pytest.mark.django_db(transaction=True)
def test_calls_on_every_thread_can_publish() -> None:
    async def main() -> None:
        executor, feeds = wiring.get_services().executor, wiring.get_services().event_publisher
        held = asyncio.Barrier(executor.max_threads)
        assert (await wiring.get_services().log_executor.run(threading.current_thread)).name.startswith("mcp-log-")

        async def call() -> None:
            with executor.context():
                await executor.run(lambda: connection.ensure_connection())  # looked up on the thread
                await held.wait()
                await feeds.publish(EventDraft("a", "message"))

        try:
            async with asyncio.timeout(60):
                await asyncio.gather(*(start_call(call()) for _ in range(executor.max_threads)))
        finally:
            for pool in (executor, wiring.get_services().log_executor):
                await asyncio.to_thread(pool.close, asyncio.get_running_loop(), timeout=60)

    asyncio.run(main())


@pytest.mark.django_db(transaction=True)
def test_authorization_works_while_every_thread_is_busy() -> None:
    async def main() -> None:
        executor, over = wiring.get_services().executor, threading.Event()

        async def hold() -> None:
            with executor.context():
                await executor.run(over.wait)

        holding = [start_call(hold()) for _ in range(executor.max_threads)]
        try:
            RULE_CACHE.invalidate()
            async with asyncio.timeout(60):
                assert (
                    await wiring.get_ports().authorizer.find_hidden_keys(
                        DjangoPrincipal(issuer="test", subject="1"), []
                    )
                    == frozenset()
                )
        finally:
            over.set()
            await asyncio.gather(*holding)
            for pool in (executor, wiring.get_services().log_executor):
                await asyncio.to_thread(pool.close, asyncio.get_running_loop(), timeout=60)

    asyncio.run(main())
