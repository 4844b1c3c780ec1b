"""The event log between two processes over a real Redis: wakes, and an outage."""

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from channels.layers import channel_layers
from django.conf import settings
from django.db import connection

from mcp_django.runtime.events import channel_layer
from mcp_django.runtime.events import follower as module
from mcp_django.runtime.events.event_log import Event
from mcp_django.runtime.events.publisher import EventPublisher
from mcp_django.runtime.threads.executor import LeasingExecutor
from tests.runtime.serving import WAIT_SECONDS, eventually, real_threads, serve
from tests.support.redis import OwnRedis, own_redis

pytestmark = [
    real_threads,
    pytest.mark.redis,
]
PUBSUB = "channels_redis.pubsub.RedisPubSubChannelLayer"
PUBLISHER = """
import json, os, sys, time
import django
from django.conf import settings
settings.configure(
    DATABASES={"default": json.loads(os.environ["TEST_DATABASE"])}, USE_TZ=True,
    SECRET_KEY=os.environ["TEST_SECRET"],
    CHANNEL_LAYERS=json.loads(os.environ["TEST_LAYERS"]), MCP={"AUTH": "none"},
    INSTALLED_APPS=["django.contrib.contenttypes", "django.contrib.auth", "mcp_django"],
)
django.setup()
import mcp_django
for line in sys.stdin:
    for number in json.loads(line):
        mcp_django.notify_resource_updated(f"test://{number}/{time.monotonic()}")
    print("done", flush=True)
"""


@pytest.fixture
def redis() -> Iterator[OwnRedis]:
    with own_redis() as server:
        yield server


@pytest.fixture
def rare_polls(monkeypatch: pytest.MonkeyPatch) -> None:
    """Poll so seldom that only wakes can arrive in time."""
    monkeypatch.setattr(module, "POLL_INTERVAL_SECONDS", 60.0)
    monkeypatch.setattr(channel_layer, "RETRY_SECONDS", 0.05)


class Publisher:
    """A process of its own, without an event loop."""

    def __init__(self, layers: dict[str, Any]) -> None:
        database = {
            key: connection.settings_dict[key] for key in ("ENGINE", "NAME", "USER", "PASSWORD", "HOST", "PORT")
        }
        database["OPTIONS"] = {"timeout": 20} if connection.vendor == "sqlite" else {}
        secret = settings.SECRET_KEY
        variables = {
            "TEST_SECRET": secret,
            "TEST_DATABASE": json.dumps(database, default=str),
            "TEST_LAYERS": json.dumps(layers),
        }
        self._process = subprocess.Popen(
            [sys.executable, "-c", PUBLISHER],
            env={**os.environ, **variables},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            bufsize=1,
        )

    def publish(self, *numbers: int) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{list(numbers)}\n")
        assert self._process.stdout.readline() == "done\n"

    def end(self) -> int:
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            return self._process.wait(WAIT_SECONDS)
        finally:
            self._process.kill()
            if self._process.stdout is not None:
                self._process.stdout.close()


@contextmanager
def publisher(layers: dict[str, Any]) -> Iterator[Publisher]:
    process = Publisher(layers)
    try:
        yield process
    finally:
        process.end()


def layers(redis: OwnRedis) -> dict[str, Any]:
    return {"default": {"BACKEND": PUBSUB, "CONFIG": {"hosts": [redis.url]}}}


class RecordingSink(list[int]):
    """Records the numbers that arrived."""

    def __call__(self, event: Event) -> None:
        number, _ = event.payload["uri"].removeprefix("test://").split("/")
        self.append(int(number))


def build_publisher(executor: LeasingExecutor) -> EventPublisher:
    return EventPublisher(
        executor=executor,
        layer=channel_layer.find_channel_layer("default"),
        retention_seconds=600,
    )


def test_messages_of_a_process_without_a_loop_arrive_in_order(redis: OwnRedis, settings: Any, rare_polls: None) -> None:
    settings.CHANNEL_LAYERS = layers(redis)
    channel_layers.backends = {}

    async def main(executor: LeasingExecutor) -> None:
        received = RecordingSink()
        await build_publisher(executor).get_follower().subscribe("changes:default", received)
        with publisher(settings.CHANNEL_LAYERS) as other:
            for first in range(0, 100, 10):
                await asyncio.to_thread(other.publish, *range(first, first + 10))
            await eventually(lambda: len(received) == 100)
        assert received == list(range(100))

    serve(main)


def test_the_last_event_of_a_process_arrives_after_its_end(redis: OwnRedis, settings: Any, rare_polls: None) -> None:
    settings.CHANNEL_LAYERS = layers(redis)
    channel_layers.backends = {}

    async def main(executor: LeasingExecutor) -> None:
        received = RecordingSink()
        await build_publisher(executor).get_follower().subscribe("changes:default", received)
        other = Publisher(settings.CHANNEL_LAYERS)
        await asyncio.to_thread(other.publish, 1)
        assert await asyncio.to_thread(other.end) == 0
        await eventually(lambda: received == [1])

    serve(main)


def test_a_restart_of_redis_delays_events_and_loses_none(
    redis: OwnRedis, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "POLL_INTERVAL_SECONDS", 0.2)
    settings.CHANNEL_LAYERS = layers(redis)
    channel_layers.backends = {}

    async def main(executor: LeasingExecutor) -> None:
        received = RecordingSink()
        await build_publisher(executor).get_follower().subscribe("changes:default", received)
        with publisher(settings.CHANNEL_LAYERS) as other:
            await asyncio.to_thread(other.publish, 0)
            await eventually(lambda: received == [0])
            await asyncio.to_thread(redis.stop)
            await asyncio.to_thread(other.publish, *range(1, 10))
            await eventually(lambda: len(received) == 10)
            await asyncio.to_thread(redis.start)
            monkeypatch.setattr(module, "POLL_INTERVAL_SECONDS", 60.0)
            # The layer joins again by itself, some time later; wakes arrive from then on.
            number = 10
            while len(received) < number:
                number += 1
                await asyncio.to_thread(other.publish, number - 1)
            number += 1
            await asyncio.to_thread(other.publish, number - 1)
            await eventually(lambda: len(received) == number)
        assert received == list(range(number))

    serve(main)
