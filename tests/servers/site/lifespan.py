"""A lifespan that notes when it is entered and left, and waits a little in between, as one that closes a pool does."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

from tests.servers.site.events import note

TAG = "lifespan"
CLOSING = 0.5
"""Seconds of its exit: longer than the servers wait when no client is connected."""


@contextlib.asynccontextmanager
async def noted_lifespan(server: Any) -> AsyncIterator[str]:
    """Note "entered" and "left"."""
    note("entered", TAG)
    yield "open"
    await asyncio.sleep(CLOSING)
    note("left", TAG)
