"""`python -m benchmarks.serve --port 8766`: serve the measured project.

One worker runs in the foreground. `/mcp` is the ASGI door, `/view/mcp` the Django view, `/empty/add` a view that does
nothing. env: NTOOLS (default 5). The database is a file in a temporary directory, which is removed at the end.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks import credentials
from benchmarks.processes import free_port

ITEMS = 1000


@contextmanager
def project(
    *,
    auth: str = "none",
    middleware: str = "none",
    tools: int | None = None,
    log: bool = False,
    guarded: bool = False,
    uncached: bool = False,
    issuer: str = "",
    tasks: bool = False,
    records: str = "none",
) -> Iterator[None]:
    """Set up Django on the measured project with a new database.

    Args:
        auth: `MCP["AUTH"]`.
        middleware: "none" or "stock", for requests that Django handles.
        tools: The number of tools. The default is the value of NTOOLS, or 5.
        log: Write a log line for each call.
        guarded: "add" requires a scope and a Django permission.
        uncached: The credential of each request is verified again.
        issuer: The URL of the identity provider, if there is one.
        tasks: The server has the extension of tasks. No tool declares one.
        records: The control room records calls: "none", "default", or "all" with a row for each call.
    """
    with tempfile.TemporaryDirectory(prefix="mcp-benchmarks-") as directory:
        os.environ["BENCH_DATABASE"] = str(Path(directory, "db.sqlite3"))
        os.environ["BENCH_AUTH"], os.environ["BENCH_MIDDLEWARE"] = auth, middleware
        os.environ["BENCH_LOG"] = "1" if log else ""
        os.environ["BENCH_GUARDED"], os.environ["BENCH_UNCACHED"] = "1" if guarded else "", "1" if uncached else ""
        os.environ["BENCH_ISSUER"] = issuer
        os.environ["BENCH_TASKS"] = "1" if tasks else ""
        os.environ["BENCH_RECORDS"] = records
        os.environ["DJANGO_SETTINGS_MODULE"] = "benchmarks.site.settings"
        if tools is not None:
            os.environ["NTOOLS"] = str(tools)
        import django
        from django.core.management import call_command
        from django.db import connections

        django.setup()
        call_command("migrate", run_syncdb=True, verbosity=0)
        from benchmarks.site.models import Item

        Item.objects.bulk_create([Item(pk=number, name=f"item-{number}") for number in range(1, ITEMS + 1)])
        connections.close_all()
        try:
            yield
        finally:
            connections.close_all()


def run_uvicorn(application: Any, port: int) -> None:
    """Run one worker of uvicorn with the fast loop and parser, without access logs."""
    import uvicorn

    uvicorn.run(
        application,
        host="127.0.0.1",
        port=port,
        loop="uvloop",
        http="httptools",
        access_log=False,
        log_level="warning",
    )


def run_daphne(application: Any, port: int) -> None:
    """Run Daphne in the same way as its command, without an access log."""
    from daphne.endpoints import build_endpoint_description_strings
    from daphne.server import Server

    Server(application, endpoints=build_endpoint_description_strings(host="127.0.0.1", port=port)).run()


SERVERS: dict[str, Callable[[Any, int], None]] = {"uvicorn": run_uvicorn, "daphne": run_daphne}


def main(arguments: list[str] | None = None) -> None:
    """Serve until interrupted or terminated."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.serve", description="Serve the measured project.")
    parser.add_argument("--port", type=int, default=8766)
    parser.add_argument("--server", choices=sorted(SERVERS), default="uvicorn")
    parser.add_argument("--auth", choices=["none", *credentials.KINDS], default="none")
    parser.add_argument("--guarded", action="store_true", help='"add" takes a scope and a permission')
    parser.add_argument("--uncached", action="store_true", help="verify each credential, without a cache")
    parser.add_argument("--middleware", choices=["none", "stock"], default="none")
    parser.add_argument("--tasks", action="store_true", help="serve the extension of tasks, which no tool uses")
    parser.add_argument("--records", choices=["none", "default", "all"], default="none", help="record calls")
    parser.add_argument("--log", action="store_true", help="write the line of each call, to nowhere")
    options = parser.parse_args(arguments)
    # uvicorn raises the signal again after its shutdown. The exception lets the directory be removed.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    issuer = credentials.Issuer(free_port()) if options.auth == "external" else None
    try:
        with project(
            auth=options.auth,
            middleware=options.middleware,
            log=options.log,
            guarded=options.guarded,
            uncached=options.uncached,
            issuer="" if issuer is None else issuer.name,
            tasks=options.tasks,
            records=options.records,
        ):
            if options.auth != "none":
                for name, value in credentials.make(options.auth, issuer).items():
                    print(f"{name}: {value}")
                print(flush=True)
            from benchmarks.site.asgi import application

            SERVERS[options.server](application, options.port)
    except KeyboardInterrupt:
        pass


if __name__ == "__main__":
    main()
