"""Cache entry of a session in one process, around the Session that calls use."""

import asyncio

from mcp_django.server.calls.session import Session


class Known:
    """Cached session; the store synchronizes access."""

    __slots__ = (
        "__weakref__",
        "alarm",
        "cancels",
        "fresh_until",
        "hash",
        "log_level",
        "loop",
        "opened_here",
        "session",
        "writes",
    )

    def __init__(self, session: Session, key_hash: str, *, opened_here: bool) -> None:
        self.session, self.hash, self.opened_here = session, key_hash, opened_here
        self.loop = asyncio.get_running_loop()
        self.log_level = session.log_level
        """Log level stored in the row."""
        self.writes = 0
        """Counter that grows before and after each write, to detect outdated reads."""
        self.fresh_until = 0.0
        self.alarm: asyncio.TimerHandle | None = None
        """Timer of the next check for activity."""
        self.cancels = 0.0, 0
        """Start of the current minute, and the number of cancellations forwarded in it."""
