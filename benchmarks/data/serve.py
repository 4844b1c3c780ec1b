"""`python -m benchmarks.data.serve --port 8767`: serve the measured data.

One worker of uvicorn runs in the foreground. Without `--peer`, /mcp is this package's ASGI door, /view/mcp its view,
and /rest/airports/ a view of DRF. With `--peer`, /mcp is django-mcp-server, which has to be installed in the
environment. The database is a file that is removed at the end.
"""

from __future__ import annotations

import argparse
import datetime as dt
import os
import signal
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import uvicorn

ROWS = 1000


@contextmanager
def project(*, peer: bool) -> Iterator[None]:
    """Set up Django on a new database of a thousand airports in ten countries."""
    with tempfile.TemporaryDirectory(prefix="mcp-benchmarks-") as directory:
        os.environ["BENCH_DATABASE"] = str(Path(directory, "db.sqlite3"))
        os.environ["BENCH_PEER"] = "1" if peer else "0"
        os.environ["DJANGO_SETTINGS_MODULE"] = "benchmarks.data.settings"
        import django
        from django.core.management import call_command
        from django.db import connections

        django.setup()
        call_command("migrate", run_syncdb=True, verbosity=0)
        fill()
        connections.close_all()
        try:
            yield
        finally:
            connections.close_all()


def fill() -> None:
    """Create the rows."""
    from benchmarks.data.models import Airport, Country

    codes = [f"{first}{second}" for first in "ABCDE" for second in "XY"]
    Country.objects.bulk_create([Country(code=code, name=f"Country {code}") for code in codes])
    changed = dt.datetime(2026, 1, 1, 12, 30, tzinfo=dt.UTC)
    Airport.objects.bulk_create(
        Airport(
            pk=number,
            code=f"X{number:03}"[-4:],
            name=f"Airport number {number}",
            city=f"City {number % 97}",
            country_id=codes[number % 10],
            kind="large" if number % 7 == 0 else "small",
            latitude=number / 12.5 - 40,
            longitude=number / 5.5 - 90,
            elevation=None if number % 11 == 0 else number,
            opened=dt.date(1950 + number % 70, 1 + number % 12, 1),
            changed=changed + dt.timedelta(minutes=number),
        )
        for number in range(1, ROWS + 1)
    )


def main(arguments: list[str] | None = None) -> None:
    """Serve until interrupted or terminated."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.data.serve", description="Serve the measured data.")
    parser.add_argument("--port", type=int, default=8767)
    parser.add_argument("--peer", action="store_true", help="by django-mcp-server")
    options = parser.parse_args(arguments)
    # uvicorn raises the signal again after its shutdown. The exception lets the directory be removed.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    try:
        with project(peer=options.peer):
            uvicorn.run(
                application(peer=options.peer),
                host="127.0.0.1",
                port=options.port,
                loop="uvloop",
                http="httptools",
                access_log=False,
                log_level="warning",
            )
    except KeyboardInterrupt:
        pass


def application(*, peer: bool) -> Any:
    """Return the application that uvicorn runs."""
    from django.core.asgi import get_asgi_application

    if peer:
        return get_asgi_application()
    from mcp_django.asgi import mount

    return mount(get_asgi_application())


if __name__ == "__main__":
    main()
