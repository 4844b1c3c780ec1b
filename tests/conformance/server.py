"""The fixtures server of the conformance suite: `python -m tests.conformance.server --port 8765`, or `--stdio`.

One worker on loopback, in the foreground: the ASGI door at /mcp, with WebSocket at /mcp/ws and HTTP+SSE at /mcp/sse,
and the Django view of the same server at /view/mcp. `--stdio` serves the client at the other end of standard input and
output instead; all other output is on standard error.
The environment's FIXTURES_PAGE_SIZE sets the page size of lists.
"""

import argparse
import contextlib
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import django
import uvicorn
from django.core.management import call_command
from django.db import connections


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.conformance.server", description=__doc__)
    parser.add_argument("--port", type=int, default=8765)
    parser.add_argument("--stdio", action="store_true")
    options = parser.parse_args()
    # uvicorn ends well, and then raises the signal again: here as an exception, so that the database is removed.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit())
    with contextlib.suppress(KeyboardInterrupt), fixtures_database(migrate=options.stdio) as environment:
        os.environ.update(environment)
        if options.stdio:
            sys.exit(_over_stdio())
        _migrate()
        uvicorn.run("tests.conformance.asgi:application", host="127.0.0.1", port=options.port, log_level="warning")


@contextlib.contextmanager
def fixtures_database(*, migrate: bool = True) -> Iterator[dict[str, str]]:
    """A database for the fixtures, removed afterwards: the environment of a process that serves them.

    Without `migrate` that process makes the tables.
    """
    with tempfile.TemporaryDirectory(prefix="mcp-fixtures-") as directory:
        environment = {
            "DJANGO_SETTINGS_MODULE": "tests.conformance.settings",
            "FIXTURES_DATABASE": str(Path(directory) / "fixtures.sqlite3"),
        }
        if migrate:
            command = [sys.executable, "-m", "django", "migrate", "--verbosity=0"]
            subprocess.run(
                command, env={**os.environ, **environment}, stdin=subprocess.DEVNULL, stdout=sys.stderr, check=True
            )
        yield environment


def _migrate() -> None:
    """Make the tables in this process, which imports Django anyway."""
    django.setup()
    call_command("migrate", verbosity=0)
    connections.close_all()


def _over_stdio() -> int:
    """Serve our client from a process of its own, which ends with the client or with a signal to this one."""
    with subprocess.Popen([sys.executable, "-m", "mcp_django"]) as server:
        signal.signal(signal.SIGTERM, lambda *_: server.terminate())
        signal.signal(signal.SIGINT, lambda *_: server.send_signal(signal.SIGINT))
        return server.wait()


if __name__ == "__main__":
    main()
