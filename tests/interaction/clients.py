"""A client of any revision through any transport.

`Client` speaks as the revision demands: it opens a session in the handshake era and repeats version, capabilities and
routing headers in the stateless era. Over HTTP each message is a request of its own; on the other transports all share
a channel. Everything it receives is checked against the official schema of its revision.
"""

import asyncio
import itertools
import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from mcp_django.models import Session
from tests.interaction.channel import CANCELLED, Channel, ChannelExchange, Listener
from tests.interaction.messages import message_check
from tests.interaction.transports import ChannelTransport, Transport
from tests.interaction.wire import Exchange, Reply, http_scope

STATELESS = "2026-07-28"
HANDSHAKE = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")
REVISIONS = (*HANDSHAKE, STATELESS)
META = "io.modelcontextprotocol/"
EVERYTHING: dict[str, Any] = {"elicitation": {"form": {}, "url": {}}, "sampling": {}, "roots": {}}
"""The capabilities of a client that can do whatever it is asked."""
NAMED = {"tools/call": "name", "prompts/get": "name", "resources/read": "uri"}
numbers = itertools.count(1)
Answer = Callable[[str, dict[str, Any]], dict[str, Any]]
"""Method and parameters of a question to the client's result."""


class Client:
    """One client, as one user, of one revision."""

    def __init__(
        self,
        transport: Transport,
        revision: str,
        *,
        server: str = "interaction",
        token: str | None = "alice",
        capabilities: Mapping[str, Any] | None = None,
        headers: Mapping[str, str | None] | None = None,
    ) -> None:
        """`headers` go with every request, and with the opening of a channel."""
        self.transport, self.revision, self.server, self.token = transport, revision, server, token
        self.always = dict(headers or {})
        self.capabilities = dict(EVERYTHING if capabilities is None else capabilities)
        self.session: str | None = None
        self.hello: dict[str, Any] = {}
        """The introduction of the server: InitializeResult or DiscoverResult."""
        self._ids = itertools.count(1)
        self._sent: list[dict[str, Any]] = []
        """The requests so far: their answers may come on other streams."""
        self.version = f"1.{next(numbers)}"
        """Tells the client's session from others."""
        self._channel: Channel | None = None

    def path(self) -> str:
        """The path of the server's endpoint."""
        return self.transport.path(self.server)

    @property
    def stateless(self) -> bool:
        return self.revision == STATELESS

    async def open(self) -> "Client":
        """Handshake, or discovery in the stateless era."""
        if self.stateless:
            self.hello = (await self.request("server/discover")).result
            return self
        reply = await self.post({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": self.introduction()})
        self.hello = reply.result
        if self.transport.http:
            self.session = reply.headers["mcp-session-id"]
        assert self.hello["protocolVersion"] == self.revision
        assert (await self.notify("notifications/initialized")).accepted
        return self

    @property
    def channel(self) -> Channel:
        """The client's channel; it opens with the first message."""
        if self._channel is None or self._channel.stale:
            assert isinstance(self.transport, ChannelTransport), "over HTTP a client has no channel"
            self._channel = self.transport.open_channel(self)
        return self._channel

    def beside(self, revision: str) -> "Client":
        """Another client of any era, on the same channel."""
        other = Client(self.transport, revision, server=self.server, token=self.token, capabilities=self.capabilities)
        other._channel, other._ids = self.channel, self._ids
        return other

    def introduction(self) -> dict[str, Any]:
        """The parameters of `initialize`."""
        return {
            "protocolVersion": self.revision,
            "capabilities": self.capabilities,
            "clientInfo": {"name": "tests", "version": self.version},
        }

    def headers(self, message: Any) -> dict[str, str]:
        """The headers that a correct client sends with `message`."""
        headers = {
            "host": "127.0.0.1:8000",
            "content-type": "application/json",
            "accept": "application/json, text/event-stream",
        }
        if self.token is not None:
            headers["authorization"] = f"Bearer {self.token}"
        headers |= self.always
        if self.session is not None:
            headers["mcp-session-id"] = self.session
        if self.stateless:
            headers["mcp-protocol-version"] = self.revision
            method, params = message.get("method"), message.get("params") or {}
            if isinstance(method, str):
                headers["mcp-method"] = method
            named = NAMED.get(method) if isinstance(method, str) else None
            if named is not None and isinstance(params.get(named), str):
                headers["mcp-name"] = params[named]
        elif self.session is not None and self.revision >= "2025-06-18":
            headers["mcp-protocol-version"] = self.revision
        return headers

    def send(
        self,
        message: Any = None,
        *,
        routing: Mapping[str, str | None] | None = None,
        body: Iterable[bytes] | bytes | None = None,
        **http: Any,
    ) -> Exchange | ChannelExchange:
        """Send `message`, or `body` as it is. `routing` replaces the routing headers of HTTP; channels have none.

        The rest is for HTTP alone: `method`, `headers` (one of None is left out), `extra` headers, which may repeat,
        `path`, and entries of the scope.
        """
        chunks = [json.dumps(message).encode()] if body is None else [body] if isinstance(body, bytes) else body
        assert all(name.startswith("mcp-") for name in routing or ()), routing
        if self.transport.http:
            http["headers"] = {**(routing or {}), **(http.get("headers") or {})}
            return self._request(message, chunks, **http)
        assert not any(http.values()), f"a channel has no {', '.join(http)}: this test is about HTTP, mark it"
        whole = b"".join(chunks)
        return self._write(_read(whole) if message is None else message, whole)

    def _request(
        self,
        message: Any,
        chunks: Iterable[bytes],
        *,
        method: str = "POST",
        headers: Mapping[str, str | None],
        extra: Iterable[tuple[str, str]] = (),
        path: str | None = None,
        **scope: Any,
    ) -> Exchange:
        base = self.headers(message if isinstance(message, dict) else {})
        merged = {**base, **headers}
        pairs = [*((name, value) for name, value in merged.items() if value is not None), *extra]
        check = message_check(self.revision, self._sent if method == "GET" else message)
        target = http_scope(method, path or self.path(), pairs, **scope)
        return Exchange(self.transport.app, target, chunks, check)

    def _write(self, message: Any, body: bytes) -> ChannelExchange:
        exchange = ChannelExchange(self.channel, self.revision, message, body)
        if isinstance(message, dict) and message.get("method") == CANCELLED:
            self.channel.cancel((message.get("params") or {}).get("requestId"))
        return exchange

    async def post(self, message: Any = None, **how: Any) -> Reply:
        return await self.send(message, **how).reply()

    def listen(self, last: str | None = None, **how: Any) -> Exchange:
        """GET: open the session's own stream, or go on after the event with the id `last`."""
        headers = {"content-type": None, "accept": "text/event-stream", "last-event-id": last}
        return self.send(method="GET", body=b"", headers={**headers, **how.pop("headers", {})}, **how)

    async def listen_to_server(self) -> Exchange | Listener:
        """Read messages to the session that belong to no request: on its stream, or on the channel."""
        if not self.transport.http:
            return Listener(self.channel)
        exchange = self.listen()
        assert (await exchange.started())[0] == 200
        return exchange

    async def row(self) -> Session:
        """The session, as the database has it."""
        return await Session.objects.aget(client_info__version=self.version)

    def request_message(
        self,
        method: str,
        params: Mapping[str, Any] | None = None,
        *,
        id: Any = None,
        meta: Mapping[str, Any] | None = None,
    ) -> dict[str, Any]:
        """A request as this revision wants it, with a fresh id."""
        whole = dict(params or {})
        extra = dict(meta or {})
        if self.stateless:
            extra = {META + "protocolVersion": self.revision, META + "clientCapabilities": self.capabilities, **extra}
        if extra or "_meta" in whole:
            whole["_meta"] = {**extra, **whole.get("_meta", {})}
        message: dict[str, Any] = {"jsonrpc": "2.0", "id": next(self._ids) if id is None else id, "method": method}
        if whole or params is not None:
            message["params"] = whole
        return message

    def begin(self, method: str, params: Mapping[str, Any] | None = None, **how: Any) -> Exchange | ChannelExchange:
        """Start a request and watch it."""
        about = {name: how.pop(name) for name in ("id", "meta") if name in how}
        self._sent.append(self.request_message(method, params, **about))
        return self.send(self._sent[-1], **how)

    async def request(self, method: str, params: Mapping[str, Any] | None = None, **how: Any) -> Reply:
        """A request, to its end."""
        return await self.begin(method, params, **how).reply()

    async def notify(self, method: str, params: Mapping[str, Any] | None = None, **how: Any) -> Reply:
        message = {"jsonrpc": "2.0", "method": method, **({} if params is None else {"params": dict(params)})}
        return await self.post(message, **how)

    async def tool(self, name: str, arguments: Mapping[str, Any] | None = None, **how: Any) -> Reply:
        """One `tools/call`, one round."""
        params = {"name": name, "arguments": dict(arguments or {})}
        params |= {key: how.pop(key) for key in ("inputResponses", "requestState") if key in how}
        return await self.request("tools/call", params, **how)

    async def converse(self, method: str, params: Mapping[str, Any], answer: Answer) -> Reply:
        """Send a request, and answer all its questions with `answer`, in the form of the era."""
        if self.stateless:
            return await self._rounds(method, dict(params), answer)
        exchange = self.begin(method, params)
        while await exchange.speaks():
            message = await exchange.message()
            if "method" not in message:
                break
            if "id" in message:
                await self.answer(message["id"], answer(message["method"], message.get("params") or {}))
        return await exchange.reply()

    async def _rounds(self, method: str, params: dict[str, Any], answer: Answer) -> Reply:
        reply = await self.request(method, params)
        while "result" in reply.message and reply.result["resultType"] == "input_required":
            answers = {
                key: answer(question["method"], question.get("params") or {})
                for key, question in reply.result.get("inputRequests", {}).items()
            }
            retry = {**params, "inputResponses": answers, "requestState": reply.result["requestState"]}
            reply = await self.request(method, retry)
        return reply

    async def ask_tool(self, name: str, arguments: Mapping[str, Any], answer: Answer) -> Reply:
        """`converse` for a tool."""
        return await self.converse("tools/call", {"name": name, "arguments": dict(arguments)}, answer)

    async def answer(self, id: Any, result: Mapping[str, Any]) -> None:
        """Answer a question of the server's (handshake era)."""
        assert (await self.post({"jsonrpc": "2.0", "id": id, "result": dict(result)})).accepted


def _read(body: bytes) -> Any:
    """Parse a body; None if it is not JSON."""
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        return None


def accept(**content: Any) -> dict[str, Any]:
    """An ElicitResult."""
    return {"action": "accept", "content": content}


def answers(script: Iterable[dict[str, Any]], asked: list[Any] | None = None) -> Answer:
    """Answer each question with the next entry of `script`, and record the question."""
    lines = iter(script)

    def answer(method: str, params: dict[str, Any]) -> dict[str, Any]:
        if asked is not None:
            asked.append(params.get("message", method))
        return next(lines)

    return answer


async def together(*work: Any) -> list[Any]:
    """Run coroutines side by side; the first failure fails the test."""
    return list(await asyncio.gather(*work))
