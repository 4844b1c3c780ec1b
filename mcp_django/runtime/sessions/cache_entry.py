"""A session as one process remembers it, around the Session that calls see."""

import asyncio

from mcp_django.server.calls.session import Session


class Known:
    """What this process knows of a session. The store guards it."""

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
        """The row's."""
        self.writes = 0
        """Grows around every write, so that a read that crossed one is not taken for news."""
        self.fresh_until = 0.0
        self.alarm: asyncio.TimerHandle | None = None
        """When to look whether it has something open."""
        self.cancels = 0.0, 0
        """Since when, and how many cancellations were passed on."""
