"""`python -m benchmarks.room`: time until the control room opens.

The control room shows ten million calls. The counts are those of a week: minutes of two days, hours and days of seven,
from several processes, tools and callers, as the recorder and its maintenance write them. The database is SQLite;
`--postgres postgres://user@host/name` uses that server, in a database of its own that is dropped afterwards. Each span
is opened in turn. The table has the wall and CPU time of the process, which renders the page, and the number of
statements.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import django
from django.conf import settings
from django.core.management import call_command
from django.db import connection, transaction
from django.urls import path

from benchmarks.log import database
from benchmarks.report import table

CALLS = 10_000_000
WEEK_HOURS, MINUTE_HOURS = 168, 48
RECENT_MINUTES = 15
"""Minutes whose rows are not compacted yet."""
OUTCOME_SHARES = {"ok": 0.97, "tool_error": 0.02, "bug": 0.01}
SPANS = ("hour", "day", "week")
URL = "/admin/mcp_control_room/controlroom/"


def configure(entry: dict[str, Any]) -> None:
    """Set up Django with the control room, its admin and this database."""
    apps = ["admin", "auth", "contenttypes", "sessions", "messages", "staticfiles"]
    middleware = ["sessions.middleware.Session", "auth.middleware.Authentication", "messages.middleware.Message"]
    processors = ["template.context_processors.request", "contrib.auth.context_processors.auth"]
    processors.append("contrib.messages.context_processors.messages")
    settings.configure(
        DATABASES={"default": entry},
        INSTALLED_APPS=[*(f"django.contrib.{app}" for app in apps), "mcp_django", "mcp_django.contrib.control_room"],
        MIDDLEWARE=[f"django.contrib.{name}Middleware" for name in middleware],
        TEMPLATES=[
            {
                "BACKEND": "django.template.backends.django.DjangoTemplates",
                "APP_DIRS": True,
                "OPTIONS": {"context_processors": [f"django.{name}" for name in processors]},
            }
        ],
        ALLOWED_HOSTS=["testserver"],
        SECRET_KEY="thrown-away",
        STATIC_URL="static/",
        USE_TZ=True,
        DEFAULT_AUTO_FIELD="django.db.models.BigAutoField",
        MCP={"AUTH": "none"},
    )
    django.setup()
    from django.contrib import admin

    settings.ROOT_URLCONF = (path("admin/", admin.site.urls),)
    call_command("migrate", verbosity=0)


class Week:
    """Counts of a week that ends now."""

    def __init__(self, tools: int, callers: int, processes: int) -> None:
        self.tools = [f"tool_{number}" for number in range(tools)]
        self.callers = [f"django|{number}|client" for number in range(callers)]
        self.processes = [f"web:{number}" for number in range(processes)]
        self.now = datetime.now(UTC).replace(second=0, microsecond=0)
        self.minute_calls = CALLS / (WEEK_HOURS * 60 * tools)

    def fill(self) -> None:
        """Write all rows, in the state in which a running site has them."""
        from mcp_django.contrib.control_room.models import CallRollup, UsageRollup
        from mcp_django.contrib.control_room.recording.maintenance import merge_rollups

        hour = self.now.replace(minute=0)
        minutes = [self.now - timedelta(minutes=past) for past in range(MINUTE_HOURS * 60)]
        hours = [hour - timedelta(hours=past) for past in range(WEEK_HOURS)]
        insert(CallRollup, self.iter_rollups(60, minutes[:RECENT_MINUTES], self.processes))
        insert(CallRollup, self.iter_rollups(60, minutes[RECENT_MINUTES:], [""]))
        insert(CallRollup, self.iter_rollups(3600, hours[1:], [""]))
        insert(UsageRollup, self.iter_usage(hours[:2], self.processes))
        insert(UsageRollup, self.iter_usage(hours[2:], [""]))
        merge_rollups(self.now)

    def iter_rollups(self, period: int, starts: list[datetime], processes: list[str]) -> Iterator[tuple[Any, ...]]:
        """Yield the rows of `CallRollup`."""
        from mcp_django.contrib.control_room.recording.histogram import BUCKET_COUNT, pack

        calls = self.minute_calls * period / 60 / len(processes)
        shares = {}
        for outcome, share in OUTCOME_SHARES.items():
            count = max(int(calls * share), 1)
            spread = [count // 10 if 8 <= bucket < 18 else 0 for bucket in range(BUCKET_COUNT)]
            spread[20] = count - sum(spread)
            shares[outcome] = (count, count * 12.5, 180.0, pack(spread))
        for start in starts:
            for process in processes:
                for tool in self.tools:
                    for outcome, values in shares.items():
                        yield (period, start, "default", "tools/call", tool, outcome, process, *values)

    def iter_usage(self, hours: list[datetime], processes: list[str]) -> Iterator[tuple[Any, ...]]:
        """Yield the rows of `UsageRollup`."""
        count = max(int(self.minute_calls * 60 / len(self.callers) / len(processes)), 1)
        for start in hours:
            for process in processes:
                for number, caller in enumerate(self.callers):
                    for tool in self.tools:
                        key = (start, "default", "tools/call", tool, caller, str(number), "client", process)
                        yield (*key, count, count // 50, count * 12.5)


def insert(model: Any, rows: Iterator[tuple[Any, ...]]) -> None:
    """Insert rows, whose values are in the order of the fields."""
    fields = [field.column for field in model._meta.concrete_fields if not field.primary_key]
    place = f"{model._meta.db_table} ({', '.join(fields)})"
    with connection.cursor() as cursor:
        if connection.vendor == "postgresql":
            with cursor.copy(f"COPY {place} FROM STDIN") as copy:
                for row in rows:
                    copy.write_row(row)
            cursor.execute(f"VACUUM ANALYZE {model._meta.db_table}")
        else:
            values = ", ".join(["?"] * len(fields))
            statement = f"INSERT INTO {place} VALUES ({values})"  # names of fields only
            texts = (tuple(str(v.replace(tzinfo=None)) if isinstance(v, datetime) else v for v in row) for row in rows)
            with transaction.atomic():
                cursor.connection.executemany(statement, texts)


def measure(rounds: int) -> str:
    """Return the table of all spans."""
    from django.contrib.auth.models import User
    from django.db import reset_queries
    from django.test import Client

    client = Client()
    client.force_login(User.objects.create_superuser("boss"))
    client.get(URL)  # templates are compiled once in a process
    taken: dict[str, list[tuple[float, float]]] = {span: [] for span in SPANS}
    statements = {}
    for _ in range(rounds):
        for span in SPANS:
            wall, cpu = time.perf_counter(), time.process_time()
            response = client.get(URL, {"span": span})
            taken[span].append((1000 * (time.perf_counter() - wall), 1000 * (time.process_time() - cpu)))
            if response.status_code != 200:
                raise RuntimeError(f"{span}: {response.status_code}")
    settings.DEBUG = True
    for span in SPANS:
        reset_queries()
        client.get(URL, {"span": span})
        statements[span] = len(connection.queries)
    lines = []
    for span, readings in taken.items():
        cells = [
            f"{statistics.median(values):.0f} ({min(values):.0f}-{max(values):.0f})"
            for values in zip(*readings, strict=True)
        ]
        lines.append([span, *cells, str(statements[span])])
    return table(["span", "milliseconds", "CPU of the page", "statements"], lines)


def main() -> None:
    """Fill a database, and print the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.room", description=__doc__)
    parser.add_argument("--postgres", help="postgres://user@host/name; SQLite without it")
    parser.add_argument("--tools", type=int, default=50)
    parser.add_argument("--callers", type=int, default=40)
    parser.add_argument("--processes", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    with database(options.postgres) as entry:
        configure(entry)
        Week(options.tools, options.callers, options.processes).fill()
        print(measure(options.rounds))
        connection.close()


if __name__ == "__main__":
    main()
