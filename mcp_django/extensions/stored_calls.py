"""Calls of tools that run later, perhaps in another process.

    stored = StoredCall.from_call(call, tool, arguments)
    row.call = stored.to_json()                           # any text column
    ...
    body = await StoredCall.from_json(row.call).run()     # a CallToolResult

A run is a message of its own. It passes through the pipeline of the server with its middleware, the permission
decision and the observation of calls, but extensions do not see it again and rates do not count it again.
"""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Final
from uuid import uuid4

from django.utils import timezone, translation

from mcp_django import wiring
from mcp_django.extensions.callers import describe_caller, load_caller, to_json_value
from mcp_django.protocol import jsonrpc
from mcp_django.protocol.errors import MCPError
from mcp_django.protocol.meta import PROGRESS_TOKEN, TRACEPARENT, TRACESTATE
from mcp_django.protocol.revisions import REVISIONS
from mcp_django.protocol.trace_context import find_carrier
from mcp_django.runtime.calls.tracing import get_span_parent
from mcp_django.server.calls.call import Call, Connection, EraStrategy
from mcp_django.server.calls.message_queue import Outbox
from mcp_django.server.calls.outcome import CallRecord
from mcp_django.server.context.conversation import (
    InputRequest,
    InputUnavailable,
    ReplayConversation,
    StoredRounds,
    explain_missing_stream,
)
from mcp_django.server.pipeline import Pipeline
from mcp_django.server.ports import AttemptControl, Principal
from mcp_django.server.primitives.base import Tool
from mcp_django.server.server import Server
from mcp_django.transports.inprocess.exchange import run_request

__all__ = [
    "CallbackSink",
    "StoredCall",
    "StoredCallEra",
    "StoredCallRun",
    "UnansweredConversation",
    "create_unanswered_conversation",
    "describe_call",
]

TOOLS_CALL: Final = "tools/call"
UNANSWERED_MESSAGE: Final = "This call runs after its request has ended, so the client cannot be asked"
JSONObject = dict[str, Any]
MessageCallback = Callable[[JSONObject], None]


def describe_call(call: Call) -> JSONObject:
    """Return the facts of a call that its later run needs, as JSON.

    They are its caller and client, language and time zone, the values of the URL, and the trace.
    """
    carrier = find_carrier(call.meta, call.connection.message_headers)
    return {
        "principal": describe_caller(call.principal),
        "capabilities": call.capabilities,
        "client_info": call.client_info,
        "progress_token": call.meta.get(PROGRESS_TOKEN),
        "url_kwargs": {name: to_json_value(value) for name, value in call.url_kwargs.items()},
        "language": translation.get_language(),
        "time_zone": timezone.get_current_timezone_name(),
        "span": get_span_parent(),
        "missing_stream": explain_missing_stream(call.root),
        "trace": {key: carrier[key] for key in (TRACEPARENT, TRACESTATE) if isinstance(carrier.get(key), str)},
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredCall:
    """A call of a tool, as JSON values only. It holds no secret of its caller."""

    server: str
    """Alias of the server."""
    tool: str
    arguments: JSONObject
    revision: str
    context: JSONObject = field(repr=False)
    """Facts of the call; see `describe_call`."""
    id: str = field(default_factory=lambda: uuid4().hex)
    """ID of the request of the run, and its progress token."""

    @classmethod
    def from_call(cls, call: Call, tool: Tool, arguments: Mapping[str, Any]) -> "StoredCall":
        """Store a call, as `Extension.call_tool` receives it.

        Raises TypeError for a principal of another class than this package's.
        """
        return cls(
            server=call.server.alias,
            tool=tool.name,
            arguments=dict(arguments),
            revision=call.revision.version,
            context=describe_call(call),
        )

    @classmethod
    def from_json(cls, text: str) -> "StoredCall":
        """Return the stored call of a text of `to_json`. Raises ValueError, TypeError."""
        return cls(**jsonrpc.loads(text.encode()))

    def to_json(self) -> str:
        """Return the call as text."""
        return jsonrpc.dumps(asdict(self)).decode()

    async def run(self, on_message: MessageCallback | None = None) -> JSONObject:
        """Run the tool to its end for the caller as it is now; return the body of its result.

        `on_message` receives each notification before the result, such as progress. The tool cannot ask its client.

        Raises:
            CallerGone: the user is gone or inactive, or the credential was revoked.
            MCPError: the error of the call.
            Overloaded: the server cannot run it now.
            KeyError: this process has no such server, or does not know the revision.
        """
        server = wiring.get_server(self.server)
        caller = await load_caller(self.server, self.context["principal"], server.ports.executor.run)
        return await StoredCallRun(server, caller, self, on_message=on_message).run()


class UnansweredConversation(ReplayConversation):
    """Conversation of a run whose client cannot be asked. Steps of `ctx.run_once` run."""

    async def request_input(self, request: InputRequest) -> Any:
        self._call.require_capability(request.required_capability)
        raise InputUnavailable(UNANSWERED_MESSAGE)


def create_unanswered_conversation(call: Call) -> ReplayConversation:
    """Create the conversation of a run whose client cannot be asked."""
    return UnansweredConversation(call, b"", call.server.options.conversation_limits, StoredRounds({}, {}))


class StoredCallRun:
    """Run of a stored call on the event loop.

    `create_conversation` creates the conversation of the run with its client, and `attempt` is informed of its end.
    """

    def __init__(
        self,
        server: Server,
        principal: Principal,
        stored: StoredCall,
        *,
        on_message: MessageCallback | None = None,
        create_conversation: Callable[[Call], ReplayConversation] = create_unanswered_conversation,
        attempt: AttemptControl | None = None,
    ) -> None:
        self._server = server
        self._principal = principal
        self._stored = stored
        self._on_message = on_message
        self._create_conversation = create_conversation
        self._attempt = attempt
        self._pipeline = Pipeline(server)
        self._era = StoredCallEra(self._pipeline.eras[REVISIONS[stored.revision].era], self._create_call)

    async def run(self) -> JSONObject:
        """Return the body of the result. Raises MCPError, Overloaded.

        The language and the time zone of the current context become those of the call.
        """
        stored = self._stored
        self._activate_locale()
        connection = Connection(self._principal, url_kwargs=stored.context["url_kwargs"] or None)
        outbox = Outbox()
        outbox.redirect_to(CallbackSink(self._on_message))
        outbox.loop = asyncio.get_running_loop()
        params = {"name": stored.tool, "arguments": stored.arguments}
        message = {"jsonrpc": "2.0", "id": stored.id, "method": TOOLS_CALL, "params": params}
        try:
            return await run_request(self._pipeline, self._era, message, connection, outbox)
        finally:
            outbox.finish()

    def build_error(self, problem: MCPError) -> JSONObject:
        """Return an error of the run as its client would receive it."""
        problem.request_id = self._stored.id
        error: JSONObject = jsonrpc.loads(self._pipeline.encode_error(self._era, problem))["error"]
        return error

    def _activate_locale(self) -> None:
        context = self._stored.context
        if context["language"] is None:
            translation.deactivate_all()
        else:
            translation.activate(context["language"])
        timezone.activate(context["time_zone"])

    def _create_call(self, era: "StoredCallEra", message: Any, connection: Connection, outbox: Outbox) -> Call:
        context, record = self._stored.context, CallRecord()
        record.is_continued = True
        record.attempt = self._attempt
        record.linked_span = context.get("span")
        call = Call(
            message,
            revision=REVISIONS[self._stored.revision],
            era=era,
            connection=connection,
            server=self._server,
            outbox=outbox,
            capabilities=context["capabilities"],
            client_info=context["client_info"],
            meta={PROGRESS_TOKEN: self._stored.id, **context["trace"]},
            log_level="info",
            record=record,
        )
        era.conversation = self._create_conversation(call)
        return call


class StoredCallEra:
    """Strategy of an era for stored calls, whose messages have been checked. See `calls.call.EraStrategy`."""

    def __init__(self, inner: EraStrategy, create_call: Callable[..., Call]) -> None:
        self.name = inner.name
        self.conversation: ReplayConversation | None = None
        """Conversation of the call, once it is created."""
        self._inner = inner
        self._create_call = create_call

    def parse(self, raw: Any, connection: Connection) -> jsonrpc.Message | list[Any]:
        return jsonrpc.read(raw)

    def create_call(
        self, message: jsonrpc.Request | jsonrpc.Notification, connection: Connection, outbox: Outbox
    ) -> Call:
        return self._create_call(self, message, connection, outbox)

    def check(self, call: Call) -> None:
        """Check nothing: the message was checked when the call arrived."""

    def add_result_fields(self, call: Call, body: JSONObject, *, private: bool = True) -> JSONObject:
        return self._inner.add_result_fields(call, body, private=private)

    def add_round_fields(self, call: Call, body: JSONObject) -> JSONObject:
        return body

    def get_http_status(self, problem: MCPError) -> int:
        return self._inner.get_http_status(problem)

    def resume_conversation(self, call: Call) -> ReplayConversation | None:
        return self.conversation

    def start_conversation(self, call: Call) -> ReplayConversation | None:
        return self.conversation


class CallbackSink:
    """Sink that passes each message to a function, decoded. It waits for no reader."""

    def __init__(self, callback: MessageCallback | None) -> None:
        self._callback = callback

    async def put(self, message: bytes) -> None:
        self.put_nowait(message)

    def put_nowait(self, message: bytes) -> None:
        if self._callback is not None:
            self._callback(jsonrpc.loads(message))

    def has_room(self) -> bool:
        return True

    def finish(self, message: bytes | None = None) -> None:
        return None

    def abort(self) -> None:
        return None

    def put_cancellation(self, message: bytes) -> None:
        return None

    def disconnect_reader(self, retry: float | None) -> bool:
        return False
