"""A client of one connection with subscriptions, and a record of its changes and the outcomes of calls."""

import asyncio
from collections.abc import Callable
from typing import Any

from mcp_django.protocol import jsonrpc, meta
from mcp_django.protocol.headers import Headers
from mcp_django.server.calls.call import Call, Connection
from mcp_django.server.calls.message_queue import Outbox
from mcp_django.server.calls.pending import Acknowledgement, PendingResponse
from mcp_django.server.options import ServerOptions
from mcp_django.server.pipeline import Pipeline
from mcp_django.server.ports import Outcome, Overloaded
from mcp_django.server.server import Server
from mcp_django.server.subscriptions.listen import Subscription
from tests.server.client import STATELESS, make_principal, ports


class ChangeLog:
    """`ports.Changes` in memory."""

    def __init__(self) -> None:
        self.listeners: list[Callable[[str, Any], None]] = []
        self.open: list[str] = []
        self.announced: list[tuple[bool, tuple[str, ...]]] = []
        self.full = False
        self.ready = asyncio.Event()
        self.ready.set()

    def acquire_stream(self, owner: str) -> None:
        if self.full:
            raise Overloaded
        self.open.append(owner)

    def release_stream(self, owner: str) -> None:
        self.open.remove(owner)

    async def add_listener(self, callback: Callable[[str, Any], None]) -> Callable[[], None]:
        await self.ready.wait()
        self.listeners.append(callback)
        return lambda: self.listeners.remove(callback)

    async def subscribe(self, call: Call, uri: str) -> None:
        raise NotImplementedError

    async def unsubscribe(self, call: Call, uri: str) -> None:
        raise NotImplementedError

    def send_stream_signal(self, call: Call, uris: Any, *, opened: bool) -> None:
        self.announced.append((opened, tuple(uris)))

    def deliver(self, kind: str, /, **payload: Any) -> None:
        for deliver in list(self.listeners):
            deliver(kind, payload)


class CallEndings:
    """An observer that records the outcomes of calls."""

    def __init__(self) -> None:
        self.ended: list[tuple[Any, Outcome]] = []

    def observe(self, call: Call) -> None:
        return None

    def record_outcome(self, call: Call, outcome: Outcome, problem: Any) -> None:
        self.ended.append((call.id, outcome))


class ListenClient:
    """A client on one connection."""

    def __init__(self, *, middleware: Any = (), headers: Headers | None = None, options: Any = None) -> None:
        self.log, self.watch = ChangeLog(), CallEndings()
        given = ports(change_feed=self.log, observer=self.watch)
        self.server = Server("tests", "1", ports=given, middleware=middleware, options=options or ServerOptions())
        self.pipeline = Pipeline(self.server)
        in_flight: dict[Any, Any] | None = {} if headers is None else None
        self.connection = Connection(make_principal("shop.view_order"), headers=headers, shared_calls=in_flight)

        @self.server.resource("note://open")
        async def open_note() -> str:
            return ""

        @self.server.resource("note://open/{+part}")
        async def part_note(part: str) -> str:
            return ""

        @self.server.resource("note://secret", permission="shop.view_order")
        async def secret_note() -> str:
            return ""

        @self.server.tool
        async def anything() -> str:
            """Do something."""
            return ""

    async def listen(self, id: Any = 1, *, capabilities: Any = None, client: Any = None, **wanted: Any) -> Subscription:
        work = self.send(
            "subscriptions/listen", {"notifications": wanted}, id, capabilities=capabilities, client=client
        )
        assert isinstance(work, PendingResponse)
        assert not work.can_stream
        await work.run
        assert self.connection.subscriptions is not None
        return self.connection.subscriptions[id]

    def send(
        self, method: str, params: dict[str, Any], id: Any = None, *, capabilities: Any = None, client: Any = None
    ) -> Any:
        about = {meta.PROTOCOL_VERSION: STATELESS, meta.CLIENT_CAPABILITIES: capabilities or {}}
        whole = {**params, "_meta": {**about, **({} if client is None else {meta.CLIENT_INFO: client})}}
        message = {"jsonrpc": "2.0", "method": method, "params": whole, **({} if id is None else {"id": id})}
        raw = jsonrpc.loads(jsonrpc.dumps(message))
        return self.pipeline.handle(self.pipeline.stateless, raw, self.connection, Outbox())

    async def notify(self, method: str, params: dict[str, Any]) -> None:
        receipt = self.send(method, params)
        assert isinstance(receipt, Acknowledgement)
        if receipt.run is not None:
            await receipt.run


async def taken(subscription: Subscription) -> list[Any] | None:
    messages = await subscription.take_messages()
    return None if messages is None else [jsonrpc.loads(message) for message in messages]
