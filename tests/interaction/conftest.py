"""Doors, revisions and clients as fixtures. Tests that take several of them run for every combination."""

import inspect
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest
from django.core.asgi import get_asgi_application

from mcp_django.asgi import mount
from tests.interaction import handlers, lasting, odd, places, questions, samples, shelf, singly
from tests.interaction.clients import HANDSHAKE, REVISIONS, STATELESS, Client
from tests.interaction.doors import CHANNELS, DOORS, ChannelDoor, Door
from tests.interaction.lines import LINES
from tests.interaction.live import live_server
from tests.interaction.surroundings import _the_test_s_connection_stays_open, serve, stage

__all__ = [
    "_the_test_s_connection_stays_open",
    "handlers",
    "lasting",
    "odd",
    "places",
    "questions",
    "samples",
    "shelf",
    "singly",
    "stage",
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
        "MIDDLEWARE": ["tests.interaction.tenancy.of_the_url"],
        "PROVIDERS": ["tests.interaction.tenancy.rooms"],
    },
    "shelf": {"NAME": "shelf", "STORED": False},
    "places": {"NAME": "places", "INSTRUCTIONS": "Ask where you are"},
    "unsessioned": {"NAME": "unsessioned", "REQUIRE_SESSION": False, "STORED": False},
    "modern": {"NAME": "modern", "ERAS": ["stateless"]},
    "legacy": {"NAME": "legacy", "ERAS": ["handshake"]},
}


@pytest.fixture(autouse=True)
def _served(settings: Any, db: None) -> None:
    """The servers of these tests, for those whom `people` knows, on loopback."""
    serve(settings, SERVERS)


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


ERAS = ("revision", "handshake", "either", "version", "victim")
"""Parameters that say which revision a test speaks."""


SPEAKING = (DOORS[0], CHANNELS[0])
"""The doors that speak for the others: over these a test is run with all of its values, and for all revisions."""


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "over(*doors, reason): the doors that a test is about, when it is not all")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out the doors that a test is not about, by its mark and by what all tests have in common."""
    out = {item for item in items if not _is_for_its_door(item)}
    out |= _spoken_for([item for item in items if item not in out])
    if out:
        config.hook.pytest_deselected(items=list(out))
        items[:] = [item for item in items if item not in out]


def _is_for_its_door(item: pytest.Item) -> bool:
    params = item.callspec.params if hasattr(item, "callspec") else {}
    door, mark = params.get("door"), item.get_closest_marker("over")
    if door is None:
        return True
    if mark is not None and door not in mark.args:
        return False
    revisions = {value for name in ERAS if isinstance(value := params.get(name), str)}
    if "modern" in getattr(item, "fixturenames", ()):
        revisions.add(STATELESS)
    if door == "sse" and STATELESS in revisions:
        return False  # the transport is older than the era
    # What revisions have in common on a channel is seen on the first of the channels.
    return door not in CHANNELS[1:] or not revisions & set(HANDSHAKE[1:-1])


def _spoken_for(items: list[pytest.Item]) -> set[pytest.Item]:
    """Those that another door speaks for: on most doors a test that is not about its doors is run once for each
    revision, with the first of its values, and not for the revisions in the middle if there are others.
    """
    found: set[pytest.Item] = set()
    runs: dict[tuple[str, str], dict[str | None, pytest.Item]] = {}
    for item in items:
        params = item.callspec.params if hasattr(item, "callspec") else {}
        door = params.get("door")
        if door is None or door in SPEAKING or item.get_closest_marker("over") or "test_garbage" in item.nodeid:
            continue
        revision = next((value for name in ERAS if isinstance(value := params.get(name), str)), None)
        first = runs.setdefault((item.nodeid.partition("[")[0], door), {}).setdefault(revision, item)
        if first is not item:
            found.add(item)
    for by_revision in runs.values():
        middle = [item for revision, item in by_revision.items() if revision in HANDSHAKE[1:-1]]
        found.update(middle if len(middle) < len(by_revision) else ())
    return found


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> Iterator[None]:
    """Clients hang up on the loop of their test."""
    door, test = pyfuncitem.funcargs.get("door"), pyfuncitem.obj
    if isinstance(door, ChannelDoor) and inspect.iscoroutinefunction(test):

        async def to_the_end(**values: Any) -> None:
            try:
                await test(**values)
            except BaseException:
                await door.hang_up()
                raise
            await door.close()

        pyfuncitem.obj = to_the_end
    return (yield)


@pytest.fixture(params=DOORS)
def door(request: pytest.FixtureRequest) -> Door:
    """Every door: the ASGI door beside Django, the view behind it, and the channels."""
    if request.param == "asgi":
        return Door(lambda: mount(get_asgi_application()))
    if request.param == "view":
        return Door(get_asgi_application, "/view")
    line, has_headers = LINES[request.param], request.param != "stdio"
    return ChannelDoor(line, lambda: mount(get_asgi_application()), has_headers=has_headers)


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
