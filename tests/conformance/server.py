"""The fixtures server of the conformance suite: `python -m tests.conformance.server --port 8765`, or `--stdio`.

One worker on loopback, in the foreground: the ASGI door at /mcp, with WebSocket at /mcp/ws and HTTP+SSE at /mcp/sse,
and the Django view of the same server at /view/mcp. `--stdio` serves the client at the other end of standard input and
output instead; whatever else has to be said is said on standard error.
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

import uvicorn


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.conformance.server", description=__doc__)
    parser.add_argument("--port", type=int, default=8765)
    parser.add_argument("--stdio", action="store_true")
    options = parser.parse_args()
    # uvicorn ends well, and then as the signal says: by an exception, so that the database is removed.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit())
    with contextlib.suppress(KeyboardInterrupt), fixtures_database() as environment:
        os.environ.update(environment)
        if options.stdio:
            sys.exit(_over_stdio())
        uvicorn.run("tests.conformance.asgi:application", host="127.0.0.1", port=options.port, log_level="warning")


@contextlib.contextmanager
def fixtures_database() -> Iterator[dict[str, str]]:
    """A database with the fixtures' tables, gone afterwards: the environment of a process that serves them."""
    with tempfile.TemporaryDirectory(prefix="mcp-fixtures-") as directory:
        environment = {
            "DJANGO_SETTINGS_MODULE": "tests.conformance.settings",
            "FIXTURES_DATABASE": str(Path(directory) / "fixtures.sqlite3"),
        }
        migrate = [sys.executable, "-m", "django", "migrate", "--verbosity=0"]
        subprocess.run(
            migrate, env={**os.environ, **environment}, stdin=subprocess.DEVNULL, stdout=sys.stderr, check=True
        )
        yield environment


def _over_stdio() -> int:
    """Serve our client from a process of its own, which ends when the client has gone or when we are told to end."""
    with subprocess.Popen([sys.executable, "-m", "mcp_django"]) as server:
        signal.signal(signal.SIGTERM, lambda *_: server.terminate())
        signal.signal(signal.SIGINT, lambda *_: server.send_signal(signal.SIGINT))
        return server.wait()


if __name__ == "__main__":
    main()
