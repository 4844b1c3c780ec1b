"""Blocking functions that an event loop has to wait for.

Lists are encoded on the loop. The schemas in them are built once, by code of the project that may block: the choices of
a serializer or of a form may be rows of the database, and Django refuses queries on a thread with a running loop.
Such a function runs on a thread of its own, and the loop waits for it.

Do not use this for calls, which an executor runs on its threads:

- a call may wait for other requests of the same loop
- the number of threads must have a bound under load
"""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from mcp_django.aio.loop_local import find_running_loop

T = TypeVar("T")
THREAD_NAME_PREFIX = "mcp-off-loop"
"""Prefix of the names of the threads, each of which runs one function."""


def run_off_loop(make: Callable[[], T], *, close: Callable[[], object]) -> T:
    """Call `make` on this thread, or on a new one if an event loop is running in this one.

    The new thread has an empty context. `close` then runs on it, for the resources that `make` has opened there,
    such as connections to databases. The result is returned, and an exception is raised, as if `make` had run here.
    """
    if find_running_loop() is None:
        return make()

    def work() -> T:
        try:
            return make()
        finally:
            close()

    with ThreadPoolExecutor(1, thread_name_prefix=THREAD_NAME_PREFIX) as pool:
        return pool.submit(work).result()
