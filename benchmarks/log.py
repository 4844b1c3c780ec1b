"""`python -m benchmarks.log`: costs of appending to the event log.

The other figure is the delay of an event in another process. The database is SQLite in a directory of its own;
`--postgres postgres://user@host/name` uses that server, in a database of its own that is dropped afterwards. With
`--redis redis://host/0`, the PubSub layer of channels_redis wakes the other process; without it, that process reads the
log once a second.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import django
from django.conf import settings
from django.core.management import call_command
from django.db import connections

APPENDS, WAKES, WRITERS = 2000, 500, 4
PAUSE = 0.002
"""Seconds between two events whose delay is measured, so that each is delivered alone."""
PUBSUB = "channels_redis.pubsub.RedisPubSubChannelLayer"


def configure(database: dict[str, Any], redis: str | None) -> None:
    """Set up Django in one of the processes."""
    layers = {"default": {"BACKEND": PUBSUB, "CONFIG": {"hosts": [redis]}}} if redis else {}
    settings.configure(
        DATABASES={"default": database},
        CHANNEL_LAYERS=layers,
        INSTALLED_APPS=["django.contrib.contenttypes", "django.contrib.auth", "mcp_django"],
        SECRET_KEY="thrown-away",
        USE_TZ=True,
        DEFAULT_AUTO_FIELD="django.db.models.BigAutoField",
        MCP={"AUTH": "none"},
    )
    django.setup()


def _postgres(url: str, name: str) -> dict[str, Any]:
    parts = urlsplit(url)
    return {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": name,
        "USER": parts.username or "",
        "PASSWORD": parts.password or "",
        "HOST": parts.hostname or "",
        "PORT": parts.port or "",
        "CONN_MAX_AGE": 600,
    }


@contextmanager
def database(postgres: str | None) -> Iterator[dict[str, Any]]:
    """Create an empty database, and remove it afterwards."""
    if postgres is None:
        with tempfile.TemporaryDirectory(prefix="mcp-bench-") as directory:
            options = {
                "timeout": 20,
                "transaction_mode": "IMMEDIATE",
                "init_command": "PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL;",
            }
            name = str(Path(directory) / "log.sqlite3")
            engine = "django.db.backends.sqlite3"
            yield {"ENGINE": engine, "NAME": name, "OPTIONS": options, "CONN_MAX_AGE": 600}
        return
    import psycopg

    name = f"mcp_bench_{uuid.uuid4().hex[:8]}"
    with psycopg.connect(postgres, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}")
        try:
            yield _postgres(postgres, name)
        finally:
            connection.execute(f"DROP DATABASE {name} WITH (FORCE)")


def show(what: str, seconds: list[float]) -> None:
    """Print a line of the table."""
    ordered = sorted(seconds)
    p99 = ordered[int(len(ordered) * 0.99) - 1]
    print(f"{what:46} p50 {statistics.median(ordered) * 1e3:8.2f} ms   p99 {p99 * 1e3:8.2f} ms")


def appends() -> None:
    """Measure appends of one thread, and of several threads at once."""
    from mcp_django.runtime.events.event_log import EventDraft, EventLog

    log, draft = EventLog(), EventDraft("session:1", "message", {"jsonrpc": "2.0", "method": "notifications/x"})

    def measure(count: int, into: list[float]) -> None:
        for _ in range(count):
            begun = time.perf_counter()
            log.append([draft])
            into.append(time.perf_counter() - begun)
        connections.close_all()

    log.append([draft])
    alone: list[float] = []
    measure(APPENDS, alone)
    show("append", alone)
    together: list[list[float]] = [[] for _ in range(WRITERS)]
    threads = [threading.Thread(target=measure, args=(APPENDS // WRITERS, one)) for one in together]
    begun = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    elapsed = time.perf_counter() - begun
    show(f"append, {WRITERS} threads ({APPENDS / elapsed:.0f} a second)", [took for one in together for took in one])


async def listen(count: int) -> None:
    """Follow the events in the other process, and print the delay of each."""
    from mcp_django import wiring

    delays: list[float] = []
    over = asyncio.Event()

    def record(event: Any) -> None:
        delays.append(time.monotonic() - event.payload["sent"])
        if len(delays) == count:
            over.set()

    await wiring.get_services().event_publisher.get_follower().subscribe("bench", record)
    print("ready", flush=True)
    await over.wait()
    print(json.dumps(delays), flush=True)


async def wakes(other: subprocess.Popen[str]) -> None:
    """Publish one event after another, and print the delays in the other process."""
    from mcp_django import wiring
    from mcp_django.runtime.events.event_log import EventDraft

    assert other.stdout is not None
    await asyncio.to_thread(other.stdout.readline)
    # This process follows events too, as a worker with an open stream does.
    following = await wiring.get_services().event_publisher.get_follower().subscribe("other", lambda event: None)
    for _ in range(WAKES):
        await wiring.get_services().event_publisher.publish(EventDraft("bench", "message", {"sent": time.monotonic()}))
        await asyncio.sleep(PAUSE)
    show("append and delivery to another process", json.loads(await asyncio.to_thread(other.stdout.readline)))
    following.stop()


def main() -> None:
    """Run both measurements."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.log", description=__doc__)
    parser.add_argument("--postgres", metavar="URL")
    parser.add_argument("--redis", metavar="URL")
    arguments = parser.parse_args()
    role = os.environ.get("BENCH_LISTENS")
    if role:
        configure(json.loads(role), arguments.redis)
        asyncio.run(listen(WAKES))
        return
    with database(arguments.postgres) as entry:
        configure(entry, arguments.redis)
        call_command("migrate", verbosity=0)
        print(f"{entry['ENGINE'].rpartition('.')[2]}, {'Redis PubSub' if arguments.redis else 'no channel layer'}")
        appends()
        command = [sys.executable, "-m", "benchmarks.log", *sys.argv[1:]]
        environment = {**os.environ, "BENCH_LISTENS": json.dumps(entry)}
        with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as other:
            asyncio.run(wakes(other))
        connections.close_all()


if __name__ == "__main__":
    main()
