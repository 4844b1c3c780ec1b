"""A client of the engine without a transport: messages in, results out, in both eras.

`PipelineClient` calls the pipeline of one server as a transport would. It runs each request to its end, keeps the
messages that came before the answer, and answers questions: on the stream of a session, or in another round.
"""

import asyncio
import itertools
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from mcp_django import Context, Server
from mcp_django.auth.authorization.policy import Policy
from mcp_django.auth.principal import DjangoPrincipal, local_principal
from mcp_django.exceptions import translate
from mcp_django.protocol import jsonrpc, meta
from mcp_django.protocol.headers import Headers
from mcp_django.protocol.revisions import REVISIONS, Era
from mcp_django.runtime.sealing import TokenSealer
from mcp_django.runtime.threads.executor import LeasingExecutor
from mcp_django.server.calls.background import run_background_jobs
from mcp_django.server.calls.call import Connection, NetworkInfo
from mcp_django.server.calls.message_queue import Outbox
from mcp_django.server.calls.pending import Acknowledgement
from mcp_django.server.calls.server_ports import Ports
from mcp_django.server.calls.session import ServerSession
from mcp_django.server.options import ServerOptions
from mcp_django.server.pipeline import Pipeline

STATELESS = "2026-07-28"
HANDSHAKE = "2025-11-25"
EVERYTHING: dict[str, Any] = {"elicitation": {"form": {}, "url": {}}, "sampling": {}, "roots": {}}
READ_SECONDS = 3600.0
"""The time that a read of the outbox may take; it ends before, by a message or by the end of the call."""
Answer = Callable[[str, dict[str, Any]], dict[str, Any]]


class Sessions:
    """Sessions in memory, with a record of those that were opened."""

    def __init__(self) -> None:
        self.opened: list[ServerSession] = []

    async def open(self, *, owner: str, revision: Any, client_info: Any, capabilities: Any, **_: Any) -> ServerSession:
        session = ServerSession(
            key=f"session-{len(self.opened)}",
            owner=owner,
            revision=revision,
            client_info=client_info,
            client_capabilities=capabilities,
        )
        self.opened.append(session)
        return session

    async def save(self, session: ServerSession) -> None:
        """Nothing outlives the test."""

    async def load(self, key: str, owner: str) -> ServerSession | None:
        return next((session for session in self.opened if session.key == key), None)

    async def cancel(self, session: ServerSession, id: jsonrpc.Id) -> None:
        session.cancel(id)


class MemoryIdempotencyStore:
    """An idempotency store in memory."""

    def __init__(self) -> None:
        self.outcomes: dict[str, dict[str, Any] | None] = {}
        self.spent: set[str] = set()

    async def claim(self, name: str, **_: Any) -> bool:
        if name in self.outcomes:
            return False
        self.outcomes[name] = None
        return True

    async def record_outcome(self, name: str, outcome: dict[str, Any]) -> None:
        self.outcomes[name] = outcome

    def mark_unknown(self, name: str) -> None:
        self.outcomes[name] = {}

    async def get_outcome(self, name: str) -> dict[str, Any] | None:
        return self.outcomes[name]

    async def consume(self, digest: str, **_: Any) -> bool:
        fresh = digest not in self.spent
        self.spent.add(digest)
        return fresh


def ports(**changes: Any) -> Ports:
    """The outside of a server, without rows."""
    executor = LeasingExecutor(max_threads=2, max_queued=4)
    given: dict[str, Any] = {
        "authorizer": Policy(executor),
        "executor": executor,
        "sessions": Sessions(),
        "state_sealer": TokenSealer(["key"], purpose="state", max_token_bytes=64 * 1024),
        "cursor_sealer": TokenSealer(["key"], purpose="cursor"),
        "idempotency_store": MemoryIdempotencyStore(),
        "translate_exception": translate,
    }
    return Ports(**{**given, **changes})


def make_server(*, options: Mapping[str, Any] | None = None, **given: Any) -> Server:
    """A server of the test's own."""
    return Server("tests", "1", ports=ports(), options=ServerOptions(**(options or {})), **given)


@dataclass
class FakeUser:
    """The attributes of a user that a policy reads."""

    permissions: tuple[str, ...] = ()
    pk: Any = None

    def has_perm(self, permission: str) -> bool:
        return permission in self.permissions


def make_principal(*permissions: str, scopes: Iterable[str] = (), name: str = "somebody") -> DjangoPrincipal:
    """A caller with these permissions and scopes."""
    return DjangoPrincipal(issuer="tests", subject=name, user=FakeUser(permissions), scopes=frozenset(scopes))


@dataclass
class PipelineClient:
    """One client of one server."""

    server: Server
    principal: DjangoPrincipal = field(default_factory=local_principal)
    version: str = STATELESS
    capabilities: dict[str, Any] = field(default_factory=lambda: EVERYTHING)
    answer: Answer | None = None
    refusal: dict[str, Any] | None = None
    """The error that a session answers all questions with."""
    log_level: str | None = None
    kwargs: Mapping[str, Any] | None = None
    connection_options: dict[str, Any] = field(default_factory=dict)
    headers: Mapping[str, str] | None = None
    network: NetworkInfo | None = None

    def __post_init__(self) -> None:
        self.pipeline = Pipeline(self.server)
        self.received: list[dict[str, Any]] = []
        """Every message that came before an answer."""
        self.rounds = 0
        self.session: ServerSession | None = None
        revision = REVISIONS[self.version]
        if revision.era is Era.HANDSHAKE:
            self.session = ServerSession(
                key="session",
                owner=self.principal.key,
                revision=revision,
                client_info={"name": "tests", "version": "1"},
                client_capabilities=self.capabilities,
                initialized=True,
            )
        self._ids = itertools.count(1)

    async def request(self, method: str, params: dict[str, Any] | None = None) -> dict[str, Any]:
        """The result. Raises MCPError."""
        while True:
            result = await self._once(method, dict(params or {}))
            if result.get("resultType") != "input_required" or self.answer is None:
                return result
            self.rounds += 1
            asked = result.get("inputRequests", {})
            answers = {key: self.answer(q["method"], q.get("params", {})) for key, q in asked.items()}
            params = {**(params or {}), "inputResponses": answers, "requestState": result["requestState"]}

    async def call(self, tool: str, **arguments: Any) -> dict[str, Any]:
        """The result of a tool."""
        return await self.request("tools/call", {"name": tool, "arguments": arguments})

    async def text(self, tool: str, **arguments: Any) -> str:
        """The one text that a tool answers with."""
        result = await self.call(tool, **arguments)
        assert not result["isError"], result
        (block,) = result["content"]
        return str(block["text"])

    async def error(self, tool: str, **arguments: Any) -> str:
        """The text of the tool error that a tool answers with."""
        result = await self.call(tool, **arguments)
        assert result["isError"], result
        (block,) = result["content"]
        return str(block["text"])

    async def names(self, method: str = "tools/list", field: str = "tools", key: str = "name") -> list[str]:
        """The keys of a list."""
        return [entry[key] for entry in (await self.request(method))[field]]

    async def notify(self, method: str, params: dict[str, Any] | None = None) -> None:
        """Send a notification."""
        outcome = self._handle({"jsonrpc": "2.0", "method": method, "params": params or {}}, Outbox())
        assert isinstance(outcome, Acknowledgement)
        if outcome.run is not None:
            await outcome.run

    async def _once(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        if self.session is None:
            params["_meta"] = {
                meta.PROTOCOL_VERSION: self.version,
                meta.CLIENT_CAPABILITIES: self.capabilities,
                **({} if self.log_level is None else {meta.LOG_LEVEL: self.log_level}),
                **params.get("_meta", {}),
            }
        outbox = Outbox()
        outcome = self._handle({"jsonrpc": "2.0", "id": next(self._ids), "method": method, "params": params}, outbox)
        assert not isinstance(outcome, Acknowledgement)
        body = outcome if isinstance(outcome, bytes) else await self._run(outcome.run, outbox)
        if not isinstance(outcome, bytes):
            await run_background_jobs(outcome.calls)
        result: dict[str, Any] = jsonrpc.loads(body)["result"]
        return result

    def _handle(self, message: dict[str, Any], outbox: Outbox) -> Any:
        pairs = None if self.headers is None else [(k.lower().encode(), v.encode()) for k, v in self.headers.items()]
        headers = None if pairs is None else Headers(pairs)
        connection = Connection(self.principal, session=self.session, url_kwargs=self.kwargs, **self.connection_options)
        connection.network = self.network
        connection.headers = headers
        era = self.pipeline.eras[REVISIONS[self.version].era]
        return self.pipeline.handle(era, jsonrpc.loads(jsonrpc.dumps(message)), connection, outbox)

    async def _run(self, work: Any, outbox: Outbox) -> bytes:
        outbox.loop = asyncio.get_running_loop()
        reader = asyncio.ensure_future(self._listen(outbox))
        try:
            body: bytes = await work
            return body
        finally:
            outbox.finish()
            await reader

    async def _listen(self, outbox: Outbox) -> None:
        while (messages := await outbox.read(READ_SECONDS)) is not None:
            for message in map(jsonrpc.loads, messages):
                self.received.append(message)
                if "id" in message and self.refusal is not None and self.session is not None:
                    self.session.receive_response(jsonrpc.Response(message["id"], None, self.refusal))
                elif "id" in message and self.answer is not None and self.session is not None:
                    result = self.answer(message["method"], message.get("params", {}))
                    self.session.receive_response(jsonrpc.Response(message["id"], result, None))


def accept(**content: Any) -> dict[str, Any]:
    """Return the answer of a user that accepts the form."""
    return {"action": "accept", "content": content}


async def in_context(run: Callable[[Context], Any], **peer: Any) -> Any:
    """Run a function with the context of a call; return its value."""
    found: list[Any] = []
    server = make_server()

    @server.tool
    async def probe(ctx: Context) -> None:
        found.append(await run(ctx))

    await PipelineClient(server, **peer).call("probe")
    return found[0]
