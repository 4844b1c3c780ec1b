"""Counts of live objects in a server's process, as JSON at /probe, without Django and MCP; under ASGI by the event loop
itself.
"""

import asyncio
import ctypes
import gc
import heapq
import json
import os
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

from django.db.backends.base.base import BaseDatabaseWrapper

from mcp_django.runtime.concurrency import ConcurrencyLimiter, StreamLimiter
from mcp_django.wiring import get_services
from tests.servers.site.events import RUNNING

Application = Callable[[Any, Any, Any], Awaitable[None]]
OURS = ("mcp_django.", "asyncio.", "_asyncio.", "asgiref.", "django.")
"""The modules whose objects are counted by kind."""
BLOCK = 64
"""Bytes of a small block of Python's, in the middle of what there is."""
MALLINFO = ["arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks", "uordblks", "fordblks", "keepcost"]
WATCH = "watches-the-tests"


class Probed:
    """The site's application, with /probe in front. `?objects=1` counts living objects too, after a collection.

    `?listening=1` counts no objects: a count keeps references for a moment, and a referenced cursor of SQLite
    prevents its connection from committing.
    """

    def __init__(self, application: Application) -> None:
        self._application = application

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http" or scope["path"].removeprefix(scope.get("root_path", "")) != "/probe":
            return await self._application(scope, receive, send)
        asked = parse_qs(scope["query_string"])
        found = (
            {"listening": len(get_services().stream_limiter)}
            if b"listening" in asked
            else look(with_objects=b"objects" in asked)
        )
        headers = [(b"content-type", b"application/json"), (b"connection", b"close")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": json.dumps(found).encode()})


class ProbedWSGI:
    """The same under WSGI."""

    def __init__(self, application: Callable[[Any, Any], Any]) -> None:
        self._application = application

    def __call__(self, environ: Any, start_response: Any) -> Any:
        if environ["PATH_INFO"] != "/probe":
            return self._application(environ, start_response)
        start_response("200 OK", [("Content-Type", "application/json")])
        return [json.dumps(look(with_objects=False)).encode()]


def look(*, with_objects: bool) -> dict[str, Any]:
    """Count the live objects of this process."""
    if with_objects:
        _forget_cancelled_timers()
        gc.collect()
    threads = {thread.ident: thread.name for thread in threading.enumerate() if thread.name != WATCH}
    objects = gc.get_objects()
    limiters = [o for o in objects if isinstance(o, StreamLimiter)]
    of_streams = {id(counter) for limiter in limiters for counter in (limiter._per_owner, limiter._total)}
    opened = [o for o in objects if isinstance(o, BaseDatabaseWrapper) and o.connection is not None]
    found = {
        "token": os.environ["SITE_TOKEN"],
        "pid": os.getpid(),
        "at": time.monotonic(),
        "running": sorted(RUNNING),
        "in_flight": sum(len(o) for o in objects if isinstance(o, ConcurrencyLimiter) and id(o) not in of_streams),
        "listening": len(get_services().stream_limiter),
        "tasks": _tasks(),
        "threads": sorted(threads.values()),
        "connections": Counter(threads.get(o._thread_ident, "(a thread that is gone)") for o in opened),
        "memory": _resident(),
    }
    if with_objects:
        kinds = Counter(f"{type(o).__module__}.{type(o).__qualname__}" for o in objects)
        found["objects"] = {kind: n for kind, n in kinds.items() if kind.startswith(OURS)}
        found["all_objects"] = len(objects)
        found["allocated"] = _allocated()
    return found


def _tasks() -> Counter[str]:
    """Those of the loop, without our own."""
    try:
        return Counter(_name(task) for task in asyncio.all_tasks() if task is not asyncio.current_task())
    except RuntimeError:  # no loop runs here
        return Counter()


def _name(task: "asyncio.Task[Any]") -> str:
    """The coroutine's module and qualified name."""
    coroutine = task.get_coro()
    frame = getattr(coroutine, "cr_frame", None)
    module = "" if frame is None else frame.f_globals.get("__name__", "")
    return f"{module}.{getattr(coroutine, '__qualname__', '?')}"


def _resident() -> int:
    """Return the bytes of memory in use, where the system has a count."""
    try:
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 0


def _forget_cancelled_timers() -> None:
    """Let the loop of asyncio drop its cancelled timers now, which it does once half of them are cancelled, and the
    contexts that they were set in, which hold calls. Other loops do so at once.
    """
    try:
        loop: Any = asyncio.get_running_loop()
    except RuntimeError:  # no loop runs here
        return
    if isinstance(loop, asyncio.BaseEventLoop):
        timers: list[Any] = loop._scheduled  # type: ignore[attr-defined]
        for timer in timers:
            timer._scheduled = not timer._cancelled
        timers[:] = [timer for timer in timers if timer._scheduled]
        heapq.heapify(timers)
        loop._timer_cancelled_count = 0


class _Mallinfo(ctypes.Structure):
    """The statistics of glibc about its heaps: `struct mallinfo2` of malloc.h."""

    _fields_ = [(name, ctypes.c_size_t) for name in MALLINFO]


def _allocated() -> int:
    """Estimate the allocated bytes: Python's small blocks, which are all counted as
    big as most are, and all memory from glibc. Unlike the resident size, it does not include the memory that allocators
    keep.
    """
    blocks = sys.getallocatedblocks() * BLOCK
    try:
        mallinfo = ctypes.CDLL(None).mallinfo2
    except AttributeError:  # another C library
        return blocks
    mallinfo.restype = _Mallinfo
    heaps = mallinfo()
    return blocks + int(heaps.uordblks) + int(heaps.hblkhd)


def end_with_the_tests() -> None:
    """End with a killed test run: no servers remain, nor processes that restart them."""
    threading.Thread(target=_watch, args=(int(os.environ["SITE_OWNER"]),), name=WATCH, daemon=True).start()


def _watch(owner: int) -> None:
    while True:
        time.sleep(0.5)
        try:
            os.kill(owner, 0)
        except ProcessLookupError:
            os.killpg(os.getpgrp(), signal.SIGKILL)
