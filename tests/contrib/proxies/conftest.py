import functools
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from asgiref.sync import iscoroutinefunction

from mcp_django.signals import clients_used


@pytest.fixture(autouse=True)
def _closed(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Close the connections of proxies on the loop of the test, as at the end of a process."""
    test = request.node.obj
    if not iscoroutinefunction(test):
        return

    @functools.wraps(test)
    async def closing(**given: Any) -> None:
        closes: list[Callable[[], Awaitable[None]]] = []

        def note(close: Callable[[], Awaitable[None]], **_: Any) -> None:
            closes.append(close)

        clients_used.connect(note)
        try:
            await test(**given)
        finally:
            clients_used.disconnect(note)
            for close in closes:
                await close()

    monkeypatch.setattr(request.node, "obj", closing)
