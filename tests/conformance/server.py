"""The fixtures server of the conformance suite: `python -m tests.conformance.server --port 8765`.

One worker on loopback, in the foreground: the ASGI door at /mcp, the Django view of the same server at /view/mcp.
The environment's FIXTURES_PAGE_SIZE sets the page size of lists.
"""

import argparse
import contextlib
import os
import signal
import sys
import tempfile
from pathlib import Path

import django
import uvicorn
from django.core.management import call_command


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.conformance.server", description=__doc__)
    parser.add_argument("--port", type=int, default=8765)
    options = parser.parse_args()
    # uvicorn ends well, and then as the signal says: by an exception, so that the database is removed.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit())
    with tempfile.TemporaryDirectory(prefix="mcp-fixtures-") as directory, contextlib.suppress(KeyboardInterrupt):
        os.environ["DJANGO_SETTINGS_MODULE"] = "tests.conformance.settings"
        os.environ["FIXTURES_DATABASE"] = str(Path(directory) / "fixtures.sqlite3")
        django.setup()
        call_command("migrate", verbosity=0)
        uvicorn.run("tests.conformance.asgi:application", host="127.0.0.1", port=options.port, log_level="warning")


if __name__ == "__main__":
    main()
