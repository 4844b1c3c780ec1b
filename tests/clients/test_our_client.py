"""Our client over every transport, on our server and on one of the official SDK.

`make clients` tries it on more servers.
"""

import json
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from tests.clients import places
from tests.clients.__main__ import SPOKEN, WELL_KNOWN
from tests.clients.our_client import check
from tests.clients.places import Opened, Place
from tests.support.waiting import WAIT_SECONDS

OPENED: dict[str, Opened] = {
    "ours": places.fixtures,
    "ours, started": places.fixtures_over_stdio,
    "SDK": places.sdk_server,
}


@pytest.fixture(scope="module")
def opened() -> Iterator[dict[str, Place]]:
    """Yield the places. They start when a test needs them, and run for the module."""
    with ExitStack() as stack:
        yield _Opened(stack)


class _Opened(dict[str, Place]):
    def __init__(self, stack: ExitStack) -> None:
        super().__init__()
        self._stack = stack

    def __missing__(self, name: str) -> Place:
        self[name] = self._stack.enter_context(OPENED[name]())
        return self[name]


@pytest.fixture(autouse=True)
def long_discovery(monkeypatch: pytest.MonkeyPatch) -> None:
    """Raise the limit of the SDK's discovery.

    A server that starts slowly on a busy machine must not be taken for one of the handshake era.
    """
    monkeypatch.setattr("mcp.client.session.DISCOVER_TIMEOUT_SECONDS", WAIT_SECONDS)


@pytest.mark.parametrize(
    ("server", "way", "mode", "stateless"),
    [
        ("ours", "sse", "auto", False),
        ("ours", "websocket", "auto", True),
        ("ours", "websocket", "handshake", False),
        ("ours, started", "stdio", "auto", True),
        ("SDK", "http", "auto", True),
        ("SDK", "http", "handshake", False),
        ("SDK", "sse", "handshake", False),
        ("SDK", "stdio", "auto", True),
    ],
)
async def test_servers_are_used_by_every_way_in(
    opened: dict[str, Place], server: str, way: str, mode: str, stateless: bool
) -> None:
    target = opened[server].ways[way]
    said = await check(way, target if isinstance(target, str) else json.dumps(target), WELL_KNOWN, mode)
    assert said.endswith(SPOKEN[stateless])
