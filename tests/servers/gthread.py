"""A WSGI application for a server with threads, in a process of its own: the view at /view/mcp, and tools that look at
the process.
"""

import asyncio
import gc
import os
import threading
from pathlib import Path
from typing import Any

import django
from django.core.management import call_command
from django.core.wsgi import get_wsgi_application
from django.db import connection, connections

os.environ["DJANGO_SETTINGS_MODULE"] = "tests.conformance.settings"
django.setup()

# Django must be set up first.
import mcp_django  # noqa: E402
from mcp_django import Context  # noqa: E402
from mcp_django.models import Session  # noqa: E402

call_command("migrate", verbosity=0)
# SQLite keeps the files of connections that are closed open for as long as any connection holds a lock.
connections.close_all()
application = get_wsgi_application()

FILES = Path("/proc/self/fd")
ALL_THREADS = threading.Barrier(int(os.environ["FIXTURES_THREADS"]))
"""Where the threads of the server meet, which starts one only when the others have work."""


@mcp_django.tool
async def census() -> dict[str, int]:
    """Count the objects that a request could leak."""
    gc.collect()
    loops = [item for item in gc.get_objects() if isinstance(item, asyncio.AbstractEventLoop) and not item.is_closed()]
    return {
        "threads": threading.active_count(),
        "loops": len(loops),
        "files": len(list(FILES.iterdir())) if FILES.is_dir() else 0,
    }


@mcp_django.tool
async def rows() -> int:
    """Use the ORM on the event loop."""
    return await Session.objects.acount()


@mcp_django.tool
def rows_in_a_thread(ctx: Context) -> list[Any]:
    """Use the ORM in a plain function, and return the thread."""
    return [Session.objects.count(), threading.current_thread().name]


@mcp_django.tool
def rows_in_all_threads() -> int:
    """Use the ORM, and keep this thread until each other one of the server has come here."""
    ALL_THREADS.wait()
    return Session.objects.count()


@mcp_django.tool(timeout=0.5)
def long_statement() -> None:
    """Keep the database busy for about a minute, or until it is interrupted."""
    rows = "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n WHERE x < 300000000) SELECT count(*) FROM n"
    with connection.cursor() as cursor:
        cursor.execute(rows)
        cursor.fetchall()


@mcp_django.tool
async def dwell(ctx: Context) -> str:
    """Wait until this call is given up."""
    await asyncio.Event().wait()
    return "unreachable"


@mcp_django.tool
async def running(ctx: Context) -> int:
    """How many calls of this session run."""
    return 0 if ctx.session is None else len(ctx.session.in_flight)
