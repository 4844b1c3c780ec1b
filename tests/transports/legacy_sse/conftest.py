"""Servers with HTTP+SSE, and the two doors to them."""

from collections.abc import Callable
from typing import Any

import pytest
from django.core.asgi import get_asgi_application

from mcp_django.asgi import mount
from tests.interaction.fixtures import _keep_test_connection_open, checkpoints, serve
from tests.interaction.wire import App
from tests.transports.legacy_sse import handlers
from tests.transports.legacy_sse.client import Client

__all__ = ["_keep_test_connection_open", "checkpoints", "handlers"]
SERVERS = {
    "default": {"NAME": "default"},
    "posts": {"NAME": "posts"},
    "rooms": {"NAME": "rooms", "PATH": "mcp/<slug:house>/rooms"},
    "modern": {"NAME": "modern", "ERAS": ["stateless"]},
    "streamable": {"NAME": "streamable", "TRANSPORTS": ["http"]},
    "only": {"NAME": "only", "TRANSPORTS": ["sse"]},
}


@pytest.fixture(autouse=True)
def _served(settings: Any, db: None) -> None:
    serve(settings, SERVERS)


@pytest.fixture
def limits(settings: Any) -> Callable[..., None]:
    """Set limits, before the first request."""

    def limit(**values: Any) -> None:
        settings.MCP = {**settings.MCP, "LIMITS": values}

    return limit


@pytest.fixture
def door(request: pytest.FixtureRequest) -> str:
    """The way into the project: ASGI mount, or the Django view for tests that are run with `both_doors`."""
    name: str = getattr(request, "param", "asgi")
    return name


@pytest.fixture
def prefix(door: str) -> str:
    """Where the servers are behind the door."""
    return "" if door == "asgi" else "/view"


@pytest.fixture
def app(door: str) -> App:
    """The application behind the door, made at the first request, so that settings of the test count."""
    made: list[App] = []

    async def serve(scope: Any, receive: Any, send: Any) -> None:
        if not made:
            made.append(mount(get_asgi_application()) if door == "asgi" else get_asgi_application())
        await made[0](scope, receive, send)

    return serve


@pytest.fixture
def client(app: App, prefix: str, limits: Any) -> Client:
    """A client of the server `posts`."""
    return Client(app, f"{prefix}/mcp/posts/sse")
