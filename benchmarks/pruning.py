"""`python -m benchmarks.pruning`: calls while a million old rows are deleted.

The database is SQLite in a directory of its own; `--postgres postgres://user@host/name` uses that server, in a database
of its own that is dropped afterwards. Calls read a row, and each gets a row of the control room. Windows with and
without deletion take turns; the ratios are those of neighbouring windows, and the median is shown. The deletion runs in
two ways: in the serving process, for a short time between two writes, and by `manage.py mcp_prune` in a process of its
own. `--all` continues until each has deleted half of the rows.

The number of calls in a second of CPU time depends on the serving process alone, with its threads and its deletion. The
number of calls in a second also depends on the database, on the other process and on the load of the machine.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import django
from django.conf import settings
from django.core.management import call_command
from django.db import connection

from benchmarks.log import database
from benchmarks.report import table

WINDOW_SECONDS = 2.0
TASKS = 4
"""Calls that run at the same time."""
AGE_DAYS = 60
COLUMNS = (
    "at, server, method, name, outcome, reference, milliseconds, principal, user_key, client, revision, session, "
    "call_id, trace_id, process, arguments, seal"
)
VALUES = (
    "'default', 'tools/call', 'tool' || (i %% 50), 'ok', '', 1.0, 'django|' || (i %% 100) || '|cli', '', 'claude 1', "
    "'2026-07-28', '', '1', '', 'host:1', '', ''"
)
POSTGRES_ROWS = f"""
INSERT INTO mcp_control_room_calllogentry ({COLUMNS})
SELECT now() - interval '{AGE_DAYS} days' + i * interval '1 second', {VALUES} FROM generate_series(1, %s) AS i
"""
SQLITE_ROWS = f"""
WITH RECURSIVE series(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM series WHERE i < %s)
INSERT INTO mcp_control_room_calllogentry ({COLUMNS})
SELECT datetime('now', '-{AGE_DAYS} days', '+' || i || ' seconds'), {VALUES} FROM series
"""


def configure(entry: dict[str, Any]) -> None:
    """Set up Django in one of the processes."""
    apps = ("contenttypes", "auth", "admin", "sessions", "messages")
    settings.configure(
        DATABASES={"default": entry},
        INSTALLED_APPS=[*(f"django.contrib.{app}" for app in apps), "mcp_django", "mcp_django.contrib.control_room"],
        SECRET_KEY="thrown-away",
        USE_TZ=True,
        DEFAULT_AUTO_FIELD="django.db.models.BigAutoField",
        MCP={"AUTH": "none", "RECORD": {"CALLS": "all"}, "ALERTS": {"ENABLED": False}},
    )
    django.setup()


def fill(rows: int) -> None:
    """Insert old rows of calls."""
    with connection.cursor() as cursor:
        cursor.execute(POSTGRES_ROWS if connection.vendor == "postgresql" else SQLITE_ROWS, [rows])
        cursor.execute("ANALYZE mcp_control_room_calllogentry")


class Pruning:
    """A deletion that runs in windows."""

    def __init__(self) -> None:
        from mcp_django.contrib.control_room.recording.maintenance import iter_deletions, iter_prune_steps

        self.deletions = iter_deletions(next(iter(iter_prune_steps())))

    def run(self, seconds: float) -> int:
        """Delete rows for some seconds; return their number."""
        end, deleted = time.perf_counter() + seconds, 0
        for number in self.deletions:
            deleted += number
            if time.perf_counter() >= end:
                break
        return deleted


def prune_by_command() -> None:
    """Delete for the seconds in each line of the standard input."""
    from mcp_django.contrib.control_room.recording.maintenance import pause_between

    pruning = Pruning()
    pruning.deletions = pause_between(pruning.deletions)
    for line in sys.stdin:
        print(pruning.run(float(line)), flush=True)


@contextmanager
def deleting_process(entry: dict[str, Any]) -> Iterator[Callable[[], int]]:
    """Run a process that deletes during each window."""
    command = [sys.executable, "-m", "benchmarks.pruning", "--child", json.dumps(entry)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None

        def run() -> int:
            print(WINDOW_SECONDS, file=process.stdin, flush=True)
            return int(process.stdout.readline())

        yield run
        process.stdin.close()


def deleting_thread() -> Callable[[], int]:
    """Return a deletion in this process, with the time that its recorder gives it."""
    from mcp_django.contrib.control_room.recording.schedule import MAX_MAINTENANCE_SECONDS

    pruning = Pruning()
    return lambda: pruning.run(MAX_MAINTENANCE_SECONDS)


async def call_for(seconds: float) -> list[float]:
    """Call a tool that reads a row, and return the milliseconds of each call.

    Several calls run at once.
    """
    from mcp_django import wiring
    from mcp_django.auth.principal import local_principal
    from mcp_django.transports.inprocess.client import InProcessClient

    client, end = InProcessClient(wiring.get_server(), local_principal()), time.perf_counter() + seconds
    taken: list[float] = []

    async def repeat() -> None:
        while time.perf_counter() < end:
            start = time.perf_counter()
            result = await client.request("tools/call", {"name": "read", "arguments": {}})
            taken.append((time.perf_counter() - start) * 1000)
            if result["isError"]:
                raise RuntimeError(result)

    await asyncio.gather(*(repeat() for _ in range(TASKS)))
    return taken


async def measure(run: Callable[[], int], rounds: int, rows: int) -> dict[str, str]:
    """Measure windows with and without deletion in turns, until `rows` are deleted."""
    ratios: dict[str, list[float]] = {"calls a CPU second": [], "calls": [], "median": [], "95 %": []}
    deleted = number = 0
    await call_for(WINDOW_SECONDS)
    while number < rounds or deleted < rows:
        number += 1
        start = time.process_time()
        without = await call_for(WINDOW_SECONDS)
        cpu_without = time.process_time() - start
        found: list[int] = []
        thread = threading.Thread(target=lambda: found.append(run()))  # noqa: B023  # ends within the round
        start = time.process_time()
        thread.start()
        beside = await call_for(WINDOW_SECONDS)
        cpu_beside = time.process_time() - start
        await asyncio.to_thread(thread.join)
        if not found[0]:
            break
        deleted += found[0]
        ratios["calls a CPU second"].append(len(beside) / cpu_beside / (len(without) / cpu_without))
        ratios["calls"].append(len(beside) / len(without))
        for name, share in (("median", 50), ("95 %", 95)):
            cut = [statistics.quantiles(taken, n=100)[share - 1] for taken in (beside, without)]
            ratios[name].append(cut[0] / cut[1])
    figures = {
        name: "{1:.2f} ({0:.2f}-{2:.2f})".format(*statistics.quantiles(each, n=4)) for name, each in ratios.items()
    }
    return {**figures, "pairs": str(number), "rows": f"{deleted:,}"}


def main() -> int:
    """Run, and print the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.pruning", description=__doc__)
    parser.add_argument("--postgres", metavar="URL")
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=11)
    parser.add_argument("--all", action="store_true", help="go on until all rows are deleted")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child is not None:
        configure(json.loads(options.child))
        prune_by_command()
        return 0

    with database(options.postgres) as entry:
        configure(entry)
        call_command("migrate", verbosity=0)
        from django.contrib.auth.models import Group

        from mcp_django import wiring
        from mcp_django.contrib.control_room.recording.recorder import RECORDER

        group = Group.objects.create(name="read")

        @wiring.get_server().tool
        def read() -> str:
            """Read a row."""
            return Group.objects.get(pk=group.pk).name

        fill(options.rows)
        rows = []
        with deleting_process(entry) as run:
            for label, function in (("in the serving process", deleting_thread()), ("mcp_prune", run)):
                figures = asyncio.run(measure(function, options.rounds, options.rows // 2 if options.all else 0))
                rows.append([label, *figures.values()])
        RECORDER.stop()
        load = ", ".join(f"{each:.1f}" for each in os.getloadavg())
        print(f"{connection.vendor}, {options.rows:,} rows, load of the machine {load} on {os.cpu_count()} cores\n")
        print(table(["beside the deletion, of without it", *figures], rows))
    return 0


if __name__ == "__main__":
    sys.exit(main())
