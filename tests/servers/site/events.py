"""Events of handlers: a line of JSON each, in a file that outlives the process and is shared by workers."""

import json
import os
import threading
import time
from typing import Any

RUNNING: set[str] = set()
"""Tags of the handlers of this process that are running."""


def note(what: str, tag: str, **more: Any) -> None:
    """Write an event and its time by the machine's monotonic clock, which is the same in every process."""
    at = time.monotonic()
    thread = threading.current_thread().name
    line = json.dumps({"at": at, "what": what, "tag": tag, "pid": os.getpid(), "thread": thread, **more})
    file = os.open(os.environ["SITE_EVENTS"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    try:
        os.write(file, line.encode() + b"\n")
    finally:
        os.close(file)


class noted:  # noqa: N801 -- used as a statement
    """Around a handler's body: notes "started", and "ended", or "cancelled", or "failed" with the exception's name."""

    def __init__(self, tag: str) -> None:
        self.tag = tag

    def __enter__(self) -> None:
        RUNNING.add(self.tag)
        note("started", self.tag)

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        RUNNING.discard(self.tag)
        name = None if kind is None else kind.__name__
        note({None: "ended", "CancelledError": "cancelled"}.get(name, "failed"), self.tag, problem=name)
