"""Fixtures of every test that serves the interaction tests' handlers."""

import asyncio
import os
from collections.abc import Coroutine, Iterator
from typing import Any

import pytest
from django.core.signals import request_finished, request_started
from django.db import close_old_connections

from tests.interaction.stage import STAGE
from tests.support.clock import Clock


@pytest.fixture(autouse=True)
def stage() -> Any:
    """What handlers of this test do, counted from zero."""
    STAGE.reset()
    return STAGE


@pytest.fixture(autouse=True)
def _the_test_s_connection_stays_open() -> Iterator[None]:
    """As in Django's test client: a request must not close the connection whose transaction the test runs in."""
    for signal in (request_started, request_finished):
        signal.disconnect(close_old_connections)
    yield
    for signal in (request_started, request_finished):
        signal.connect(close_old_connections)


def serve(settings: Any, servers: dict[str, dict[str, Any]]) -> None:
    """Serve these, for those whom `people` knows, on loopback."""
    settings.ALLOWED_HOSTS = ["127.0.0.1", "localhost"]
    settings.ROOT_URLCONF = "tests.interaction.urls"
    settings.MIDDLEWARE = []
    settings.DEBUG = False
    settings.MCP = {"AUTH": "tests.interaction.people.Tokens", "SERVERS": servers}


async def advance_until(clock: Clock, work: Coroutine[Any, Any, Any], seconds: float = 1.0) -> Any:
    """Let time go on in steps of so many seconds until something is done; its result.

    Threads have real time to work between two steps.
    """
    task = asyncio.ensure_future(work)
    while not task.done():
        await clock.advance(seconds)
        await asyncio.to_thread(_pause)
    return await task


def _pause() -> None:
    """Give way to other threads."""
    os.sched_yield()
