"""Doors, revisions and clients as fixtures. Tests that take several of them run for every combination."""

from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest
from django.core.asgi import get_asgi_application
from django.core.signals import request_finished, request_started
from django.db import close_old_connections

from mcp_django.asgi import mount
from tests.interaction import handlers, lasting, odd, places, questions, samples, singly
from tests.interaction.clients import HANDSHAKE, REVISIONS, STATELESS, Client, Door
from tests.interaction.live import live_server
from tests.interaction.stage import STAGE

__all__ = ["handlers", "lasting", "odd", "places", "questions", "samples", "singly"]
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
    "pages": {"NAME": "pages", "PAGE_SIZE": 2},
    "tenants": {
        "NAME": "tenants",
        "PATH": "mcp/tenants/<slug:tenant>/<int:floor>",
        "MIDDLEWARE": ["tests.interaction.tenancy.of_the_url"],
        "PROVIDERS": ["tests.interaction.tenancy.rooms"],
    },
    "places": {"NAME": "places", "INSTRUCTIONS": "Ask where you are"},
    "unsessioned": {"NAME": "unsessioned", "REQUIRE_SESSION": False},
    "modern": {"NAME": "modern", "ERAS": ["stateless"]},
    "legacy": {"NAME": "legacy", "ERAS": ["handshake"]},
}


@pytest.fixture(autouse=True)
def stage() -> Any:
    """What handlers of this test do, counted from zero."""
    STAGE.reset()
    return STAGE


@pytest.fixture(autouse=True)
def _served(settings: Any, db: None) -> None:
    """The servers of these tests, for those whom `people` knows, on loopback."""
    settings.ALLOWED_HOSTS = ["127.0.0.1", "localhost"]
    settings.ROOT_URLCONF = "tests.interaction.urls"
    settings.MIDDLEWARE = []
    settings.DEBUG = False
    settings.MCP = {"AUTH": "tests.interaction.people.Tokens", "SERVERS": SERVERS}


@pytest.fixture(autouse=True)
def _the_test_s_connection_stays_open() -> Iterator[None]:
    """As in Django's test client: a request must not close the connection whose transaction the test runs in."""
    for signal in (request_started, request_finished):
        signal.disconnect(close_old_connections)
    yield
    for signal in (request_started, request_finished):
        signal.connect(close_old_connections)


@pytest.fixture
def limits(settings: Any) -> Callable[..., None]:
    """Set limits: `limits(BODY=100)`. Call it before the first client connects."""

    def limit(**values: Any) -> None:
        settings.MCP = {**settings.MCP, "LIMITS": {**settings.MCP.get("LIMITS", {}), **values}}

    return limit


@pytest.fixture(scope="session")
def port() -> Iterator[int]:
    """A real server's port: the fixtures server, in a process of its own."""
    with live_server() as port:
        yield port


@pytest.fixture(params=["asgi", "view"])
def door(request: pytest.FixtureRequest) -> Door:
    """Both doors: the ASGI door beside Django, and the view behind it."""
    if request.param == "asgi":
        return Door(lambda: mount(get_asgi_application()), "")
    return Door(get_asgi_application, "/view")


@pytest.fixture(params=REVISIONS)
def revision(request: pytest.FixtureRequest) -> str:
    """Every revision."""
    version: str = request.param
    return version


@pytest.fixture(params=HANDSHAKE)
def handshake(request: pytest.FixtureRequest) -> str:
    """Every revision of the handshake era."""
    version: str = request.param
    return version


@pytest.fixture
def connect(door: Door, revision: str) -> Connect:
    """`await connect()`: a client of every revision, connected, through both doors."""
    return _connector(door, revision)


@pytest.fixture
def modern(door: Door) -> Callable[..., Client]:
    """`modern()`: a client of the stateless era, through both doors. It has nothing to connect."""
    return lambda **options: Client(door, STATELESS, **options)


@pytest.fixture
def legacy(door: Door, handshake: str) -> Connect:
    """`await legacy()`: a client of every revision of the handshake era, with a session, through both doors."""
    return _connector(door, handshake)


@pytest.fixture
def latest_legacy(door: Door) -> Connect:
    """`await latest_legacy()`: a client of the newest revision of the handshake era, where one revision is enough."""
    return _connector(door, HANDSHAKE[-1])


@pytest.fixture
def restart(settings: Any, door: Door) -> Callable[[], None]:
    """`restart()`: from now on another process serves, with the same database and the same keys."""

    def again() -> None:
        settings.MCP = {**settings.MCP}
        door.restart()

    return again


@pytest.fixture(params=[HANDSHAKE[-1], STATELESS], ids=["handshake", "stateless"])
def either(request: pytest.FixtureRequest, door: Door) -> Connect:
    """`await either()`: a client of the newest revision of each era, where the era may matter but no revision does."""
    return _connector(door, request.param)


def _connector(door: Door, version: str) -> Connect:
    async def connect(**options: Any) -> Client:
        return await Client(door, version, **options).open()

    return connect
