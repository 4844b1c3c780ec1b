"""Cache entry of a session in one process, around the Session that calls use."""

import asyncio

from mcp_django.server.calls.session import ServerSession


class CachedSession:
    """Cached session; the store synchronizes access."""

    __slots__ = (
        "__weakref__",
        "forwarded_cancels",
        "fresh_until",
        "is_opened_in_process",
        "key_hash",
        "log_level",
        "loop",
        "session",
        "touch_timer",
        "write_count",
    )

    def __init__(self, session: ServerSession, key_hash: str, *, is_opened_in_process: bool) -> None:
        self.session = session
        self.key_hash = key_hash
        self.is_opened_in_process = is_opened_in_process
        self.loop = asyncio.get_running_loop()
        self.log_level = session.log_level
        """Log level stored in the row."""
        self.write_count = 0
        """Counter that grows before and after each write, to detect outdated reads."""
        self.fresh_until = 0.0
        self.touch_timer: asyncio.TimerHandle | None = None
        """Timer of the next check for activity."""
        self.forwarded_cancels = 0.0, 0
        """Start of the current minute, and the number of cancellations forwarded in it."""
