"""What is alive in a server's process, as JSON at /probe; answered by the event loop itself, past Django and MCP."""

import asyncio
import gc
import json
import os
import signal
import threading
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

from django.db.backends.base.base import BaseDatabaseWrapper

from mcp_django.runtime.in_flight import InFlight
from mcp_django.wiring import listens
from tests.servers.site.events import RUNNING

Application = Callable[[Any, Any, Any], Awaitable[None]]
OURS = ("mcp_django.", "asyncio.", "_asyncio.", "asgiref.", "django.")
"""What is counted kind by kind."""
WATCH = "watches-the-tests"


class Probed:
    """The site's application, with /probe in front. `?objects=1` counts living objects too, after a collection."""

    def __init__(self, application: Application) -> None:
        self._application = application

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http" or scope["path"].removeprefix(scope.get("root_path", "")) != "/probe":
            return await self._application(scope, receive, send)
        found = look(with_objects=b"objects" in parse_qs(scope["query_string"]))
        headers = [(b"content-type", b"application/json"), (b"connection", b"close")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": json.dumps(found).encode()})


def look(*, with_objects: bool) -> dict[str, Any]:
    """What is alive in this process now."""
    if with_objects:
        gc.collect()
    threads = {thread.ident: thread.name for thread in threading.enumerate() if thread.name != WATCH}
    objects = gc.get_objects()
    opened = [o for o in objects if isinstance(o, BaseDatabaseWrapper) and o.connection is not None]
    found = {
        "token": os.environ["SITE_TOKEN"],
        "pid": os.getpid(),
        "at": time.monotonic(),
        "running": sorted(RUNNING),
        "in_flight": sum(len(o) for o in objects if isinstance(o, InFlight)),
        "listening": len(listens()),
        "tasks": Counter(_name(task) for task in asyncio.all_tasks() if task is not asyncio.current_task()),
        "threads": sorted(threads.values()),
        "connections": Counter(threads.get(o._thread_ident, "(a thread that is gone)") for o in opened),
        "memory": _resident(),
    }
    if with_objects:
        kinds = Counter(f"{type(o).__module__}.{type(o).__qualname__}" for o in objects)
        found["objects"] = {kind: n for kind, n in kinds.items() if kind.startswith(OURS)}
        found["all_objects"] = len(objects)
    return found


def _name(task: "asyncio.Task[Any]") -> str:
    """The coroutine's module and qualified name."""
    coroutine = task.get_coro()
    frame = getattr(coroutine, "cr_frame", None)
    module = "" if frame is None else frame.f_globals.get("__name__", "")
    return f"{module}.{getattr(coroutine, '__qualname__', '?')}"


def _resident() -> int:
    """Bytes of memory in use, where the system tells."""
    try:
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 0


def end_with_the_tests() -> None:
    """A test run that was killed leaves no servers behind, nor processes that start them anew."""
    threading.Thread(target=_watch, args=(int(os.environ["SITE_OWNER"]),), name=WATCH, daemon=True).start()


def _watch(owner: int) -> None:
    while True:
        time.sleep(0.5)
        try:
            os.kill(owner, 0)
        except ProcessLookupError:
            os.killpg(os.getpgrp(), signal.SIGKILL)
