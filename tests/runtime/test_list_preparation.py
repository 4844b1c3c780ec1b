"""Preparation of lists: entries of tools are built on threads after the start."""

import asyncio
import threading
from typing import Any

from mcp_django.runtime.list_preparation import ListPreparation
from mcp_django.server.server import Server
from tests.server.client import make_server
from tests.support.waiting import eventually


class Schemas:
    """Parameters whose schema is built at its first use, and the threads that built it."""

    header_params = ()

    def __init__(self, problem: Exception | None = None) -> None:
        self.threads: list[threading.Thread] = []
        self._problem = problem

    @property
    def schema(self) -> dict[str, Any]:
        self.threads.append(threading.current_thread())
        if self._problem is not None:
            raise self._problem
        return {"type": "object"}


def build_server(**schemas: Schemas) -> Server:
    server = make_server()
    for name, parameters in schemas.items():
        server.tool(name)(lambda: None)
        tool = server.registry.tools.get(name)
        assert tool is not None
        tool.parameters = parameters  # type: ignore[assignment]
    return server


async def test_entries_are_built_on_threads_and_once() -> None:
    schemas = Schemas()
    server = build_server(late=schemas)
    preparation = ListPreparation([server])
    preparation.start()
    await eventually(lambda: bool(schemas.threads))
    await preparation.stop()
    assert [tool.wire["inputSchema"]["type"] for tool in server.registry.tools] == ["object"]
    assert len(schemas.threads) == 1
    assert schemas.threads[0] is not threading.current_thread()


async def test_an_entry_that_cannot_be_built_does_not_stop_the_others() -> None:
    broken, good = Schemas(RuntimeError("no table")), Schemas()
    preparation = ListPreparation([build_server(broken=broken, good=good)])
    preparation.start()
    await eventually(lambda: bool(good.threads))
    assert broken.threads
    await preparation.stop()


async def test_a_stop_ends_the_preparation() -> None:
    schemas = {f"tool{number}": Schemas() for number in range(50)}
    preparation = ListPreparation([build_server(**schemas)])
    preparation.start()
    await preparation.stop()
    await asyncio.to_thread(lambda: None)
    assert not any(one.threads for one in schemas.values())
    await ListPreparation([]).stop()
