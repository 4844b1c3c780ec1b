"""Fixtures of every test that serves the interaction tests' handlers."""

from collections.abc import Iterator
from typing import Any

import pytest
from django.core.signals import request_finished, request_started
from django.db import close_old_connections

from tests.interaction.checkpoints import CHECKPOINTS


@pytest.fixture(autouse=True)
def checkpoints() -> Any:
    """Count the steps of the handlers of this test."""
    CHECKPOINTS.reset()
    return CHECKPOINTS


@pytest.fixture(autouse=True)
def _keep_test_connection_open() -> Iterator[None]:
    """As in Django's test client: a request must not close the connection whose transaction the test runs in."""
    for signal in (request_started, request_finished):
        signal.disconnect(close_old_connections)
    yield
    for signal in (request_started, request_finished):
        signal.connect(close_old_connections)


def serve(settings: Any, servers: dict[str, dict[str, Any]]) -> None:
    """Serve these, for the users of `people`, on loopback."""
    settings.ALLOWED_HOSTS = ["127.0.0.1", "localhost"]
    settings.ROOT_URLCONF = "tests.interaction.urls"
    settings.MIDDLEWARE = []
    settings.DEBUG = False
    settings.MCP = {"AUTH": "tests.interaction.verifiers.Tokens", "SERVERS": servers}
