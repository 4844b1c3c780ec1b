"""A client without a transport: each request goes through the whole pipeline of a server, middleware, permissions,
checks and handlers included, and its result comes back as it would be sent.
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
    """One caller of one server: `Client()`, `Client("staff", user=alice)`, or with a Server of the test's own.

    Without `user` and `principal` it is the local principal, who may do everything. A `user` has their Django
    permissions, and `scopes` (None: all that anything asks for). `revision` is one of the protocol's, the latest by
    default; for those with a handshake `initialize` is said before the first request.

    `elicit` is a function of the params of an `elicitation/create` that returns an ElicitResult (`accept`, `decline`,
    `cancel`), `sample` one of those of a `sampling/createMessage` that returns a text or a CreateMessageResult; both
    may be async. `roots` are URIs. What is given is declared as a capability, and `capabilities` besides.

    A bug of a handler, whose text no client is ever sent, is raised as it is. With `raise_exceptions=False` there is
    the result that clients get. An MCPError is always raised, and a tool's error is a result.
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
        """Raises ValueError for a revision that there is none of, and for scopes without a user."""
        if revision is not None and revision not in REVISIONS:
            raise ValueError(f"There is no revision {revision!r}; there are {', '.join(REVISIONS)}")
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
        """What the server said while requests ran: `{"method": …, "params": …}`, in order."""
        self.session: Session | None = None
        """As the server has it; None before `initialize`, and in the stateless era."""
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
        """The InitializeResult; opens the session. In the stateless era the result of `server/discover`."""
        if not self._shakes_hands:
            return await self.request("server/discover")
        said = {"protocolVersion": self.revision.version, "capabilities": self.capabilities, "clientInfo": INFO}
        connection = self._connection()
        result = await self._exchange("initialize", said, connection)
        self.session = connection.opened
        await self.notify("notifications/initialized")
        return result

    async def close(self) -> None:
        """End the session, as a client that leaves does."""
        session, self.session = self.session, None
        if session is not None:
            await self.server.sessions.end(session, "client")

    async def request(self, method: str, params: Mapping[str, Any] | None = None) -> Wire:
        """The result of any request, after as many rounds of questions as it takes. Its `_meta` has what the client
        says besides, a `progressToken` too; None in the `_meta` of `params` leaves an entry out.

        Raises MCPError, Overloaded; what the answering functions raise; and bugs.
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
        """Send a notification, and wait until the server has acted on it."""
        message = {"jsonrpc": "2.0", "method": method, "params": self._params(dict(params or {}))}
        handled = self._pipeline.handle(self._era, jsonrpc.loads(jsonrpc.dumps(message)), self._connection(), Outbox())
        if isinstance(handled, Receipt) and handled.run is not None:
            await handled.run

    async def call_tool(self, name: str, arguments: Mapping[str, Any] | None = None) -> Wire:
        """The CallToolResult, which may have `isError`."""
        return await self.request("tools/call", {"name": name, "arguments": dict(arguments or {})})

    async def read_resource(self, uri: str) -> list[Wire]:
        """The contents of a resource."""
        contents: list[Wire] = (await self.request("resources/read", {"uri": uri}))["contents"]
        return contents

    async def get_prompt(self, name: str, arguments: Mapping[str, str] | None = None) -> Wire:
        """The GetPromptResult."""
        return await self.request("prompts/get", {"name": name, "arguments": dict(arguments or {})})

    async def complete(
        self, target: str, argument: str, value: str, arguments: Mapping[str, str] | None = None
    ) -> list[str]:
        """What completes `value`, for an argument of the prompt `target`, or a variable of the template `target`."""
        ref = {"type": "ref/resource", "uri": target} if "{" in target else {"type": "ref/prompt", "name": target}
        params: Wire = {"ref": ref, "argument": {"name": argument, "value": value}}
        if arguments:
            params["context"] = {"arguments": dict(arguments)}
        values: list[str] = (await self.request("completion/complete", params))["completion"]["values"]
        return values

    async def list_tools(self) -> list[Wire]:
        """All the tools that the caller sees."""
        return await self._all("tools/list", "tools")

    async def list_resources(self) -> list[Wire]:
        """All the resources that the caller sees."""
        return await self._all("resources/list", "resources")

    async def list_resource_templates(self) -> list[Wire]:
        """All the templates that the caller sees."""
        return await self._all("resources/templates/list", "resourceTemplates")

    async def list_prompts(self) -> list[Wire]:
        """All the prompts that the caller sees."""
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
        """Keep a notification; answer a question of a session."""
        if "id" not in said:
            self.notifications.append({"method": said["method"], "params": said.get("params", {})})
        elif self.session is not None:
            try:
                answer = jsonrpc.Response(said["id"], await self._answer(said), None)
            except Exception as problem:
                # The handler must not wait for what will not come.
                self._failed = problem
                error = {"code": InternalError.code, "message": "The test's answer failed"}
                answer = jsonrpc.Response(said["id"], None, error)
            self.session.answer(answer)

    async def _answer(self, asked: Wire) -> Any:
        answering = self._answering.get(asked["method"])
        if answering is None:
            raise AssertionError(f"The server asks {asked['method']}, and the client was given no answer to it")
        found = answering(asked.get("params", {}))
        return await found if inspect.isawaitable(found) else found


def accept(**content: Any) -> Wire:
    """An ElicitResult of somebody who fills in the form. A single value, such as that of a `bool`, is `value`."""
    return {"action": "accept", "content": content}


def decline() -> Wire:
    """An ElicitResult of somebody who says no."""
    return {"action": "decline"}


def cancel() -> Wire:
    """An ElicitResult of somebody who closes the dialog."""
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
            raise ValueError("scopes are what a user's client holds; say which user, or give a principal")
        return local_principal()
    held = EVERY_SCOPE if scopes is None else frozenset(scopes)
    return Principal(issuer=ISSUER, subject=str(user.pk), client_id="testing", user=user, scopes=held, kind="testing")
