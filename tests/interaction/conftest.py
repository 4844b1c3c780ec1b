"""Cases by transport and revision, and clients as fixtures."""

from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest
from asgiref.sync import iscoroutinefunction
from django.core.asgi import get_asgi_application

from mcp_django.asgi import mount
from tests.interaction import (
    actors,
    faulty_handlers,
    handlers,
    jobs,
    long_calls,
    managers,
    panels,
    questions,
    request_context,
    restricted,
    sampling,
    single_use,
)
from tests.interaction.channel_types import CHANNEL_TYPES
from tests.interaction.clients import HANDSHAKE, REVISIONS, STATELESS, Client
from tests.interaction.fixtures import _keep_test_connection_open, checkpoints, serve
from tests.interaction.live_server import live_server
from tests.interaction.transports import ChannelTransport, Transport

__all__ = [
    "_keep_test_connection_open",
    "actors",
    "checkpoints",
    "faulty_handlers",
    "handlers",
    "jobs",
    "long_calls",
    "managers",
    "panels",
    "questions",
    "request_context",
    "restricted",
    "sampling",
    "single_use",
]
Connect = Callable[..., Awaitable[Client]]
SERVERS = {
    "default": {"NAME": "default"},
    "interaction": {
        "NAME": "interaction",
        "VERSION": "1.2.3",
        "TITLE": "Interaction tests",
        "DESCRIPTION": "Says and asks",
        "WEBSITE_URL": "https://example.com",
        "INSTRUCTIONS": "Call the tools",
    },
    "pages": {"NAME": "pages", "PAGE_SIZE": 2, "STORED": False},
    "tenants": {
        "NAME": "tenants",
        "PATH": "mcp/tenants/<slug:tenant>/<int:floor>",
        "MIDDLEWARE": ["tests.interaction.tenants.of_the_url"],
        "PROVIDERS": ["tests.interaction.tenants.rooms"],
    },
    "restricted": {"NAME": "restricted", "STORED": False},
    "places": {"NAME": "places", "INSTRUCTIONS": "Ask where you are"},
    "unsessioned": {"NAME": "unsessioned", "REQUIRE_SESSION": False, "STORED": False},
    "modern": {"NAME": "modern", "ERAS": ["stateless"]},
    "legacy": {"NAME": "legacy", "ERAS": ["handshake"]},
    "extended": {"NAME": "extended", "STORED": False, "EXTENSIONS": ["tests.interaction.extensions.Counters"]},
    "panels": {"NAME": "panels", "STORED": False, "EXTENSIONS": ["mcp_django.contrib.apps.Apps"]},
    "managers": managers.SERVER_SETTINGS,
    "jobs": {"NAME": "jobs", "STORED": False, "EXTENSIONS": ["mcp_django.contrib.tasks.Tasks"]},
}


@pytest.fixture(autouse=True)
def _served(settings: Any, db: None) -> None:
    """The servers of these tests, for the users of `people`, on loopback."""
    serve(settings, SERVERS)


@pytest.fixture
def limits(settings: Any) -> Callable[..., None]:
    """Set limits: `limits(BODY=100)`. Call it before the first client connects."""

    def limit(**values: Any) -> None:
        settings.MCP = {**settings.MCP, "LIMITS": {**settings.MCP.get("LIMITS", {}), **values}}

    return limit


@pytest.fixture
def no_queue(monkeypatch: pytest.MonkeyPatch) -> None:
    """Calls beyond `IN_FLIGHT` find no place in the queue."""
    monkeypatch.setattr("mcp_django.runtime.calls.call_limiter.MAX_QUEUED_CALLS", 0)


@pytest.fixture(scope="session")
def port() -> Iterator[int]:
    """A real server's port: the fixtures server, in a process of its own."""
    with live_server() as port:
        yield port


USUAL_REVISION = {"view": STATELESS, "websocket": STATELESS, "sse": HANDSHAKE[-1], "stdio": HANDSHAKE[-1]}
"""The revision in which a transport is tested that is not the first of a test: each era on two of them."""
REVISION_FIXTURES = {"revision": REVISIONS, "handshake": HANDSHAKE, "newest": (HANDSHAKE[-1], STATELESS)}
"""Fixtures with one revision after the other."""


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Make the cases of a test: its first transport in each revision, the others in one."""
    if "transport" not in metafunc.fixturenames:
        return
    transports = _names(metafunc, "transports") or ("asgi",)
    fixture = next((name for name in REVISION_FIXTURES if name in metafunc.fixturenames), None)
    wanted = _names(metafunc, "revisions")
    if "modern" in metafunc.fixturenames:
        transports = tuple(name for name in transports if name != "sse")
    if fixture is None:
        metafunc.parametrize("transport", transports, indirect=True)
        return
    revisions = [revision for revision in REVISION_FIXTURES[fixture] if not wanted or revision in wanted]
    cases = [(transports[0], revision) for revision in revisions]
    for transport in transports[1:]:
        usual = USUAL_REVISION[transport]
        cases.append((transport, usual if usual in revisions else revisions[-1]))
    metafunc.parametrize(
        ("transport", fixture),
        [(transport, revision) for transport, revision in cases if transport != "sse" or revision != STATELESS],
        indirect=True,
    )


def _names(metafunc: pytest.Metafunc, marker: str) -> tuple[str, ...]:
    mark = metafunc.definition.get_closest_marker(marker)
    return mark.args if mark else ()


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> Iterator[None]:
    """Clients hang up on the loop of their test."""
    transport, test = pyfuncitem.funcargs.get("transport"), pyfuncitem.obj
    if isinstance(transport, ChannelTransport) and iscoroutinefunction(test):

        async def to_the_end(**values: Any) -> None:
            await transport.run_to_end(test(**values))

        pyfuncitem.obj = to_the_end
    try:
        return (yield)
    finally:
        pyfuncitem.obj = test  # the item lives on, and would keep the transport with all of its servers


@pytest.fixture
def transport(request: pytest.FixtureRequest) -> Transport:
    """The transport of the case."""
    name = request.param
    if name == "view":
        found = Transport(get_asgi_application, "/view")
    elif name == "asgi":
        found = Transport(lambda: mount(get_asgi_application()))
    else:
        found = ChannelTransport(
            CHANNEL_TYPES[name], lambda: mount(get_asgi_application()), has_headers=name != "stdio"
        )
    found.name = name
    return found


@pytest.fixture
def revision(request: pytest.FixtureRequest) -> str:
    """Every revision."""
    version: str = request.param
    return version


@pytest.fixture
def handshake(request: pytest.FixtureRequest) -> str:
    """Every revision of the handshake era."""
    version: str = request.param
    return version


@pytest.fixture
def newest(request: pytest.FixtureRequest) -> str:
    """The newest revision of each era, where the era may matter but no revision does."""
    version: str = request.param
    return version


@pytest.fixture
def connect(transport: Transport, revision: str) -> Connect:
    """`await connect()`: a client of every revision, connected."""
    return _connector(transport, revision)


@pytest.fixture
def modern(transport: Transport) -> Callable[..., Client]:
    """`modern()`: a client of the stateless era. It has nothing to connect."""
    return lambda **options: Client(transport, STATELESS, **options)


@pytest.fixture
def legacy(transport: Transport, handshake: str) -> Connect:
    """`await legacy()`: a client of every revision of the handshake era, with a session."""
    return _connector(transport, handshake)


@pytest.fixture
def latest_legacy(transport: Transport) -> Connect:
    """`await latest_legacy()`: a client of the newest revision of the handshake era, where one revision is enough."""
    return _connector(transport, HANDSHAKE[-1])


@pytest.fixture
def restart(settings: Any, transport: Transport) -> Callable[[], None]:
    """`restart()`: from now on another process serves, with the same database and the same keys."""

    def again() -> None:
        settings.MCP = {**settings.MCP}
        transport.restart()

    return again


@pytest.fixture
def either(transport: Transport, newest: str) -> Connect:
    """`await either()`: a client of the newest revision of each era."""
    return _connector(transport, newest)


def _connector(transport: Transport, version: str) -> Connect:
    async def connect(**options: Any) -> Client:
        return await Client(transport, version, **options).open()

    return connect
