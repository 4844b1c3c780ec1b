"""Test client without a transport.

Each request passes through the whole pipeline of a server: middleware, permissions, checks and handlers. Its result is
returned as it would be sent.
"""

import inspect
import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Self

from mcp_django.auth.principal import EVERY_SCOPE, ISSUER, Principal, local_principal
from mcp_django.protocol import jsonrpc, meta
from mcp_django.protocol.errors import InternalError
from mcp_django.protocol.headers import PROTOCOL_VERSION, Headers
from mcp_django.protocol.revisions import LATEST, REVISIONS, Era
from mcp_django.server.calls.call import Connection
from mcp_django.server.calls.message_queue import Outbox
from mcp_django.server.calls.pending import Receipt
from mcp_django.server.calls.session import Session
from mcp_django.server.client_requests.conversation import INPUT_REQUIRED
from mcp_django.server.pipeline import Pipeline
from mcp_django.server.server import Server
from mcp_django.transports.inprocess import exchange
from mcp_django.wiring import get_server, ports

Wire = dict[str, Any]
Answering = Callable[[Wire], Any]
INFO = {"name": "mcp_django.testing", "version": "1"}


class Client:
    """Client of one server: `Client()`, `Client("staff", user=alice)`.

    `server` is an alias or a Server instance. Without `user` and `principal` the caller is the local principal, who has
    all permissions. A `user` has their Django permissions and `scopes` (None: every scope). `revision` is a protocol
    revision, by default the latest. In revisions with a handshake, `initialize` is sent before the first request.

    `elicit` receives the params of an `elicitation/create` and returns an ElicitResult (`accept`, `decline`, `cancel`).
    `sample` receives the params of a `sampling/createMessage` and returns a text or a CreateMessageResult. Both may be
    async. `roots` are URIs. Each of them is declared as a capability, in addition to `capabilities`.

    Bugs in handlers are raised unchanged, although a real client never receives their text. With
    `raise_exceptions=False` the result for real clients is returned. An MCPError is always raised; an error of a tool
    is a result.
    """

    def __init__(
        self,
        server: str | Server = "default",
        *,
        user: Any = None,
        scopes: Iterable[str] | None = None,
        principal: Principal | None = None,
        revision: str | None = None,
        elicit: Answering | None = None,
        sample: Answering | None = None,
        roots: Sequence[str] | None = None,
        capabilities: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
        kwargs: Mapping[str, Any] | None = None,
        log_level: str | None = "info",
        raise_exceptions: bool = True,
    ) -> None:
        """Create a client.

        Raises:
            ValueError: the revision is unknown, or scopes are given without a user.
        """
        if revision is not None and revision not in REVISIONS:
            raise ValueError(f"Unknown revision {revision!r}; use one of {', '.join(REVISIONS)}")

        found = get_server(server) if isinstance(server, str) else server
        if not found.is_bound:
            found.bind(ports(found.alias))

        self.server = found.variant(raise_bugs=raise_exceptions)
        self.principal = principal or _principal(user, scopes)
        self.revision = LATEST if revision is None else REVISIONS[revision]
        self.capabilities: Wire = {
            **({} if elicit is None else {"elicitation": {"form": {}, "url": {}}}),
            **({} if sample is None else {"sampling": {"tools": {}, "context": {}}}),
            **({} if roots is None else {"roots": {"listChanged": True}}),
            **(capabilities or {}),
        }

        self.notifications: list[Wire] = []
        """Received notifications in order: `{"method": …, "params": …}`."""
        self.session: Session | None = None
        """Session of the server; None before `initialize` and in the stateless era."""
        self._answering = {
            "elicitation/create": elicit,
            "sampling/createMessage": None if sample is None else lambda params: _sampled(sample, params),
            "roots/list": None if roots is None else lambda params: {"roots": [{"uri": uri} for uri in roots]},
        }

        self._headers, self._kwargs, self._log_level = headers, kwargs, log_level
        self._pipeline = Pipeline(self.server)
        self._ids = itertools.count(1)
        self._failed: BaseException | None = None

    async def __aenter__(self) -> Self:
        if self._shakes_hands:
            await self.initialize()
        return self

    async def __aexit__(self, *problem: object) -> None:
        await self.close()

    @property
    def _shakes_hands(self) -> bool:
        return self.revision.era is Era.HANDSHAKE

    async def initialize(self) -> Wire:
        """Open the session and return the InitializeResult.

        In the stateless era, return the result of `server/discover`.
        """
        if not self._shakes_hands:
            return await self.request("server/discover")
        said = {"protocolVersion": self.revision.version, "capabilities": self.capabilities, "clientInfo": INFO}
        connection = self._connection()
        result = await self._exchange("initialize", said, connection)
        self.session = connection.opened
        await self.notify("notifications/initialized")
        return result

    async def close(self) -> None:
        """End the session, as a client that disconnects does."""
        session, self.session = self.session, None
        if session is not None:
            await self.server.sessions.end(session, "client")

    async def request(self, method: str, params: Mapping[str, Any] | None = None) -> Wire:
        """Return the result of a request, after all rounds of input requests.

        The client adds its entries to `_meta`, including a `progressToken`. A None value in the `_meta` of `params`
        removes an entry.

        Raises:
            MCPError, Overloaded: the request failed.
            Exception: any exception of `elicit` and `sample`, and bugs in handlers.
        """
        if self._shakes_hands and self.session is None and self.server.options.require_session:
            await self.initialize()
        given = dict(params or {})
        while True:
            result = await self._exchange(method, given, self._connection())
            if result.get("resultType") != INPUT_REQUIRED:
                return result

            given = dict(params or {})
            asked = result.get("inputRequests", {})
            if asked:
                given["inputResponses"] = {key: await self._answer(one) for key, one in asked.items()}
            if "requestState" in result:
                given["requestState"] = result["requestState"]

    async def notify(self, method: str, params: Mapping[str, Any] | None = None) -> None:
        """Send a notification and wait until the server has processed it."""
        message = {"jsonrpc": "2.0", "method": method, "params": self._params(dict(params or {}))}
        handled = self._pipeline.handle(self._era, jsonrpc.loads(jsonrpc.dumps(message)), self._connection(), Outbox())
        if isinstance(handled, Receipt) and handled.run is not None:
            await handled.run

    async def call_tool(self, name: str, arguments: Mapping[str, Any] | None = None) -> Wire:
        """Return the CallToolResult, which may have `isError`."""
        return await self.request("tools/call", {"name": name, "arguments": dict(arguments or {})})

    async def read_resource(self, uri: str) -> list[Wire]:
        """Return the contents of a resource."""
        contents: list[Wire] = (await self.request("resources/read", {"uri": uri}))["contents"]
        return contents

    async def get_prompt(self, name: str, arguments: Mapping[str, str] | None = None) -> Wire:
        """Return the GetPromptResult."""
        return await self.request("prompts/get", {"name": name, "arguments": dict(arguments or {})})

    async def complete(
        self, target: str, argument: str, value: str, arguments: Mapping[str, str] | None = None
    ) -> list[str]:
        """Return completions of `value` for a prompt argument or a template variable.

        `target` is the name of the prompt or the URI template.
        """
        ref = {"type": "ref/resource", "uri": target} if "{" in target else {"type": "ref/prompt", "name": target}
        params: Wire = {"ref": ref, "argument": {"name": argument, "value": value}}
        if arguments:
            params["context"] = {"arguments": dict(arguments)}
        values: list[str] = (await self.request("completion/complete", params))["completion"]["values"]
        return values

    async def list_tools(self) -> list[Wire]:
        """Return all tools visible to the caller."""
        return await self._all("tools/list", "tools")

    async def list_resources(self) -> list[Wire]:
        """Return all resources visible to the caller."""
        return await self._all("resources/list", "resources")

    async def list_resource_templates(self) -> list[Wire]:
        """Return all resource templates visible to the caller."""
        return await self._all("resources/templates/list", "resourceTemplates")

    async def list_prompts(self) -> list[Wire]:
        """Return all prompts visible to the caller."""
        return await self._all("prompts/list", "prompts")

    async def _all(self, method: str, field: str) -> list[Wire]:
        found: list[Wire] = []
        params: Wire = {}
        while True:
            page = await self.request(method, params)
            found += page[field]
            if "nextCursor" not in page:
                return found
            params = {"cursor": page["nextCursor"]}

    @property
    def _era(self) -> Any:
        return self._pipeline.eras[self.revision.era]

    def _connection(self) -> Connection:
        connection = Connection(self.principal, session=self.session, kwargs=self._kwargs)
        given = dict(self._headers or {})
        if self._shakes_hands and not self.server.options.require_session:
            given["mcp-protocol-version"] = self.revision.version
        pairs = [(name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in given.items()]
        connection.headers = Headers(pairs) if pairs else None
        if PROTOCOL_VERSION.decode() in given:
            connection.own_headers = connection.headers
        return connection

    def _params(self, params: Wire, **more: Any) -> Wire:
        said = {**more, **params.get("_meta", {})}
        if not self._shakes_hands:
            own = {meta.PROTOCOL_VERSION: self.revision.version, meta.CLIENT_INFO: INFO}
            own[meta.CLIENT_CAPABILITIES] = self.capabilities
            said = {**own, **({} if self._log_level is None else {meta.LOG_LEVEL: self._log_level}), **said}
        said = {name: value for name, value in said.items() if value is not None}
        return {**params, "_meta": said} if said else params

    async def _exchange(self, method: str, params: Wire, connection: Connection) -> Wire:
        id, self._failed = next(self._ids), None
        message = {"jsonrpc": "2.0", "id": id, "method": method, "params": self._params(params, progressToken=id)}
        result = await exchange(self._pipeline, self._era, message, connection, self._hear)
        if self._failed is not None:
            raise self._failed
        return result

    async def _hear(self, said: Wire) -> None:
        """Store a notification, or answer a request of the server."""
        if "id" not in said:
            self.notifications.append({"method": said["method"], "params": said.get("params", {})})
        elif self.session is not None:
            try:
                answer = jsonrpc.Response(said["id"], await self._answer(said), None)
            except Exception as problem:
                # Answer the handler in any case, so that it does not wait forever.
                self._failed = problem
                error = {"code": InternalError.code, "message": "The callback of the test failed"}
                answer = jsonrpc.Response(said["id"], None, error)
            self.session.answer(answer)

    async def _answer(self, asked: Wire) -> Any:
        answering = self._answering.get(asked["method"])
        if answering is None:
            raise AssertionError(
                f"Unexpected request {asked['method']} of the server; pass a callback for it to Client"
            )
        found = answering(asked.get("params", {}))
        return await found if inspect.isawaitable(found) else found


def accept(**content: Any) -> Wire:
    """Return an ElicitResult of a user who submits the form.

    A single value, such as that of a `bool`, is named `value`.
    """
    return {"action": "accept", "content": content}


def decline() -> Wire:
    """Return an ElicitResult of a user who declines."""
    return {"action": "decline"}


def cancel() -> Wire:
    """Return an ElicitResult of a user who closes the dialog."""
    return {"action": "cancel"}


async def _sampled(sample: Answering, params: Wire) -> Wire:
    found = sample(params)
    found = await found if inspect.isawaitable(found) else found
    if not isinstance(found, str):
        return dict(found)
    return {"role": "assistant", "content": {"type": "text", "text": found}, "model": "test", "stopReason": "endTurn"}


def _principal(user: Any, scopes: Iterable[str] | None) -> Principal:
    if user is None:
        if scopes is not None:
            raise ValueError("scopes were given without a user; pass user or principal")
        return local_principal()
    held = EVERY_SCOPE if scopes is None else frozenset(scopes)
    return Principal(issuer=ISSUER, subject=str(user.pk), client_id="testing", user=user, scopes=held, kind="testing")
