"""Connection of a run: the messages of both directions, in order, with their times.

The client is in the process of the server, and its connection is the one that WebSocket and stdio use. So each message
passes through the whole server, with its limits, and the connection ends the calls that it leaves behind.
"""

from collections.abc import Awaitable, Callable, Mapping
from time import perf_counter
from typing import Any, NamedTuple

from mcp_django.contrib.playground.messages import OVERLOADED_CODE, Exchange, format_json
from mcp_django.contrib.playground.runs.simulated_clients import SimulatedClient
from mcp_django.extensions.callers import DjangoPrincipal
from mcp_django.extensions.calls import jsonrpc
from mcp_django.extensions.errors import MethodNotFound, Overloaded
from mcp_django.transports.connection.connection import DuplexConnection, open_connection
from mcp_django.transports.connection.options import ConnectionOptions
from mcp_django.transports.services import get_transport_services

READ_TIMEOUT_SECONDS = 60.0
"""Seconds that one read of a silent connection waits."""
MAX_LISTED_MESSAGES = 1000
"""Maximum messages of a run in the list of the page. Later ones change its progress and log."""
QUESTIONS = frozenset({"elicitation/create", "sampling/createMessage", "roots/list"})
"""Requests of servers that the user answers."""
JSONObject = dict[str, Any]


class WireMessage(NamedTuple):
    """Message of a run, in either direction, with its time."""

    is_sent: bool
    """True for a message of the client."""
    milliseconds: int
    """Time since the start of the run."""
    message: Mapping[str, Any]
    is_listed: bool = True
    """False for a notification beyond the maximum of the page."""

    @property
    def title(self) -> str:
        """Method, or the kind of a response."""
        if "method" in self.message:
            return str(self.message["method"])
        if "error" in self.message:
            return "error"
        result = self.message.get("result")
        kind = result.get("resultType") if isinstance(result, dict) else None
        return kind if kind not in (None, "complete") and isinstance(kind, str) else "result"

    @property
    def text(self) -> str:
        """Message as JSON."""
        return format_json(self.message)


class LiveQuestion(NamedTuple):
    """Request of a server to its client while the call runs, in the handshake era."""

    session_key: str
    request: Mapping[str, Any]


class RunObserver(NamedTuple):
    """Functions that receive the events of a run."""

    on_message: Callable[[WireMessage], Awaitable[None]]
    on_question: Callable[[LiveQuestion], Awaitable[None]]


class ConnectionEnded(Exception):
    """The connection ended before the answer; the text is the reason."""


class WireRun:
    """Request of a client, after its handshake if the revision has one."""

    def __init__(
        self,
        alias: str,
        principal: DjangoPrincipal,
        profile: SimulatedClient,
        *,
        make_request: Callable[[Any], Any] | None = None,
    ) -> None:
        self._alias = alias
        self._principal = principal
        self._profile = profile
        self._make_request = make_request
        self._started = perf_counter()
        self.messages: list[WireMessage] = []

    async def run(self, request: Mapping[str, Any], observer: RunObserver) -> Exchange:
        """Send a request, and return its answer.

        A cancellation of this coroutine cancels the call.
        """
        self._observer = observer
        services = get_transport_services(self._alias)
        try:
            connection = open_connection(services, self._principal, ConnectionOptions(make_request=self._make_request))
        except Overloaded as problem:
            return Exchange(error={"code": OVERLOADED_CODE, "message": str(problem)})
        try:
            failed = await self._shake_hands(connection) if self._profile.has_handshake else None
            answer = failed or await self._request(connection, request)
        except ConnectionEnded as problem:
            answer = {"error": {"code": OVERLOADED_CODE, "message": str(problem)}}
        finally:
            await connection.close()
        return Exchange(answer.get("result"), answer.get("error"))

    async def _shake_hands(self, connection: DuplexConnection) -> JSONObject | None:
        """Open a session. Returns the answer to `initialize` if it is an error."""
        answer = await self._request(connection, self._profile.build_initialize())
        if "error" in answer:
            return answer
        await self._send(connection, {"jsonrpc": "2.0", "method": "notifications/initialized"})
        capabilities = answer["result"].get("capabilities", {})
        if self._profile.log_level and "logging" in capabilities:
            await self._request(connection, self._profile.build_set_level())
        return None

    async def _request(self, connection: DuplexConnection, request: Mapping[str, Any]) -> JSONObject:
        """Send a request, and return its answer. Raises ConnectionEnded."""
        await self._send(connection, request)
        answer: JSONObject | None = None
        while answer is None:
            encoded = await connection.read(READ_TIMEOUT_SECONDS)
            if encoded is None:
                reason = connection.close_reason
                raise ConnectionEnded("" if reason is None else reason.value)
            for message in map(jsonrpc.loads, encoded):
                await self._record(is_sent=False, message=message)
                if "method" in message and "id" in message:
                    await self._respond(connection, message)
                elif "method" not in message and message.get("id") == request["id"]:
                    answer = message
        return answer

    async def _send(self, connection: DuplexConnection, message: Mapping[str, Any]) -> None:
        await self._record(is_sent=True, message=message)
        await connection.receive(jsonrpc.dumps(message))

    async def _record(self, *, is_sent: bool, message: Mapping[str, Any]) -> None:
        is_listed = len(self.messages) < MAX_LISTED_MESSAGES or "method" not in message
        found = WireMessage(is_sent, round((perf_counter() - self._started) * 1000), message, is_listed)
        if is_listed:
            self.messages.append(found)
        await self._observer.on_message(found)

    async def _respond(self, connection: DuplexConnection, request: JSONObject) -> None:
        """Pass a question on to the user, who answers in a request of the browser; answer other requests."""
        session = connection.session
        if request["method"] in QUESTIONS and session is not None:
            await self._observer.on_question(LiveQuestion(session.key, request))
            return
        response: JSONObject = {"jsonrpc": "2.0", "id": request["id"]}
        if request["method"] == "ping":
            response["result"] = {}
        else:
            response["error"] = {"code": MethodNotFound.code, "message": "Method not found"}
        await self._send(connection, response)
