"""WebSocket transport: one JSON-RPC message per text frame, for both eras.

The revisions define no WebSocket. This module follows their rules for all transports, and `docs/run/websocket.md`.
The handshake checks, in this order: Host and Origin, subprotocol, credential, capacity. Only then is the socket
accepted. A rejected handshake gets the HTTP answer of the endpoint if the server can send one (ASGI extension
`websocket.http.response`), and 403 otherwise.
"""

import asyncio
import contextlib
from collections.abc import Mapping, MutableMapping
from typing import Any, Final, Literal, NamedTuple

from channels.consumer import AsyncConsumer
from django.db import Error
from django.http import HttpRequest

from mcp_django import wiring
from mcp_django.auth.authentication.challenges import build_challenge, build_forbidden
from mcp_django.auth.authentication.session import SESSION_KIND
from mcp_django.auth.principal import DjangoPrincipal
from mcp_django.auth.requests import AuthRequest
from mcp_django.protocol import jsonrpc
from mcp_django.protocol.errors import InternalError, InvalidRequest, TransportRefusal
from mcp_django.protocol.headers import Headers
from mcp_django.protocol.log_text import get_logger
from mcp_django.runtime.database_failures import report_database_error
from mcp_django.server.calls.call import NetworkInfo
from mcp_django.server.ports import Overloaded, Principal
from mcp_django.transports.admission import Admission
from mcp_django.transports.connection.connection import DuplexConnection, open_connection
from mcp_django.transports.connection.options import CloseReason, ConnectionOptions
from mcp_django.transports.credentials import Credential
from mcp_django.transports.http.django_context import DjangoContext
from mcp_django.transports.http.django_request import DjangoRequestFactory
from mcp_django.transports.http.messages import Receive, Scope, Send, build_overload_reply, build_refusal
from mcp_django.transports.services import TransportServices, get_transport_services
from mcp_django.wiring.services import Services

PATH: Final = "ws"
"""Path below the path of the endpoint."""
SUBPROTOCOL: Final = "mcp"
BEARER_PREFIX: Final = "mcp.bearer."
"""Prefix of a token sent as a subprotocol; pages cannot set handshake headers."""
MIN_PRIVATE_CLOSE_CODE: Final = 4000
"""First close code for private use."""
DENIAL_EXTENSION: Final = "websocket.http.response"
NOT_FOUND_BODY: Final = b"This URL serves no WebSocket."
READ_TIMEOUT_SECONDS: Final = 24 * 3600.0
"""Seconds that one read waits; servers or pings keep a silent connection open."""
FLUSH_TIMEOUT_SECONDS: Final = 5.0
"""Seconds to send the pending messages of an ended connection."""
CLOSE_TIMEOUT_SECONDS: Final = 1.0

logger = get_logger("mcp_django.server")

CLOSE_CODES: Mapping[CloseReason, tuple[int, str]] = {
    CloseReason.SHUTDOWN: (1001, "The server is shutting down"),
    CloseReason.PING_TIMEOUT: (1001, "No answer to pings"),
    CloseReason.BINARY: (1003, "Send messages as text frames"),
    CloseReason.OVERSIZE: (1009, "The message is too large"),
    CloseReason.SLOW_CLIENT: (1013, "Messages were not read in time"),
    CloseReason.TOO_MANY_MESSAGES: (1013, "Too many messages; try again later"),
    CloseReason.REVOKED: (4401, "The credential has expired or was revoked"),
    CloseReason.FORBIDDEN: (4403, "The credential has lost rights"),
    CloseReason.SESSION_ENDED: (4404, "The session has ended"),
}
"""Code and reason of the close frame: RFC 6455, section 7.4; 4000 and up private."""


class WebSocketHandshake(NamedTuple):
    """The parsed handshake request of a client."""

    scope: Scope
    """ASGI scope; a token sent as a subprotocol is an Authorization header here."""
    headers: Headers
    subprotocol: str | None
    """Subprotocol to select; None if the client offered none."""


def read_handshake(scope: Scope) -> WebSocketHandshake:
    """Parse a handshake.

    Raises:
        TransportRefusal: 400 for unsupported subprotocols and for more than one token.
    """
    pairs: list[tuple[bytes, bytes]] = list(scope["headers"])
    subprotocols = _list_subprotocols(scope, pairs)
    tokens = [name.removeprefix(BEARER_PREFIX) for name in subprotocols if name.startswith(BEARER_PREFIX)]
    if tokens:
        if len(tokens) > 1 or any(name == b"authorization" for name, _ in pairs):
            raise _build_invalid_request("Send one token: in the Authorization header, or as a subprotocol")
        subprotocols = [name for name in subprotocols if not name.startswith(BEARER_PREFIX)]
        pairs = [pair for pair in pairs if pair[0] != b"sec-websocket-protocol"]
        pairs += [
            (b"sec-websocket-protocol", ", ".join(subprotocols).encode("latin-1")),
            (b"authorization", b"Bearer " + tokens[0].encode("latin-1")),
        ]
        scope = {**scope, "headers": pairs, "subprotocols": subprotocols}
    if SUBPROTOCOL in subprotocols:
        return WebSocketHandshake(scope, Headers(pairs), SUBPROTOCOL)
    if subprotocols or tokens:
        raise TransportRefusal(400, body=b'Unsupported subprotocol; offer "mcp" or none.')

    return WebSocketHandshake(scope, Headers(pairs), None)


def _list_subprotocols(scope: Scope, pairs: list[tuple[bytes, bytes]]) -> list[str]:
    """Return the offered subprotocols, as the client wrote them if possible.

    Daphne decodes percent signs in its list, and uvicorn with wsproto provides only the list.
    """
    values = [value.decode("latin-1") for name, value in pairs if name == b"sec-websocket-protocol"]
    if not values:
        return list(scope.get("subprotocols") or ())
    return [name for value in values for part in value.split(",") if (name := part.strip())]


def _build_invalid_request(text: str) -> TransportRefusal:
    headers = [
        (b"content-type", b"application/json"),
        (b"www-authenticate", build_challenge(error="invalid_request", description=text)),
    ]
    return TransportRefusal(400, headers, jsonrpc.error(None, InvalidRequest(text)))


class WebSocketAcceptor:
    """Accepts the WebSockets of one server."""

    def __init__(
        self, services: TransportServices, make_request: DjangoRequestFactory, django_context: DjangoContext
    ) -> None:
        """Set the services of the server.

        `make_request` builds the Django request for handlers that use it. `django_context` sets language and script
        prefix.
        """
        self._services = services
        self._admission = Admission(services)
        self._make_request = make_request
        self._django_context = django_context
        self.limits = services.limits

    async def accept(self, scope: Scope, *, accepts_sessions: bool = False) -> tuple[DuplexConnection, str | None]:
        """Return the connection and the subprotocol.

        With `accepts_sessions`, the session cookie of a page of this site is a credential. Raises TransportRefusal.
        """
        try:
            return await self._accept(scope, accepts_sessions)
        except Overloaded as error:
            raise _build_busy_refusal(error) from None
        except Error as error:
            raise _build_busy_refusal(report_database_error("the handshake of a WebSocket", error)) from None

    async def _accept(self, scope: Scope, accepts_sessions: bool) -> tuple[DuplexConnection, str | None]:
        services = self._services
        if "websocket" not in services.server.options.transports:
            # Reached by a route of the project although the transport is disabled.
            raise TransportRefusal(404, body=NOT_FOUND_BODY)
        self._admission.check_headers(Headers(scope["headers"]))
        scope, headers, subprotocol = read_handshake(scope)
        client = scope.get("client")
        kwargs = scope.get("url_route", {}).get("kwargs")
        query = (scope.get("query_string") or b"").decode("latin-1")
        auth_request = AuthRequest(
            headers,
            client[0] if client else None,
            "GET",
            kwargs,
            _get_http_scheme(scope),
            query,
            is_socket=True,
            # Every browser sends an Origin with a handshake, and the session is only for pages.
            accepts_cookie=accepts_sessions and b"origin" in headers.wire,
        )
        principal, auth_request = await self._admission.admit_socket(auth_request)
        if principal.kind == SESSION_KIND:
            _check_scope_user(scope, principal)

        def make_request(principal: Principal) -> HttpRequest:
            return self._make_request(_as_http(scope), b"", kwargs, principal)

        context, root_path = None, scope.get("root_path")
        if root_path or self._django_context.is_needed:
            context = self._django_context.create_context(headers, root_path or "")
        peer, port = client or (None, None)
        options = ConnectionOptions(
            credential=Credential.from_principal(principal, services.authenticator, auth_request),
            headers=headers,
            url_kwargs=kwargs,
            make_request=make_request,
            context=context,
            network=NetworkInfo("tcp", "websocket", None, peer, port, _get_http_scheme(scope)),
            sends_pings=True,
        )
        return open_connection(services, principal, options), subprotocol


def _check_scope_user(scope: Scope, principal: DjangoPrincipal) -> None:
    """Check that the user of a session is the one in the scope, if the scope has one.

    Middleware of the project sets it. Raises TransportRefusal.
    """
    if "user" in scope and getattr(scope["user"], "pk", None) != principal.user.pk:
        raise build_forbidden("The session belongs to another user than the one of this site's middleware")


def _as_http(scope: Scope) -> Scope:
    """Return the scope of the handshake as a GET request (RFC 6455, section 4.1)."""
    return {**scope, "type": "http", "method": "GET", "scheme": _get_http_scheme(scope)}


def _get_http_scheme(scope: Scope) -> str:
    return "https" if scope.get("scheme") == "wss" else "http"


def get_websocket_acceptor(alias: str = "default") -> WebSocketAcceptor:
    """Return the WebSocket acceptor of a server alias."""
    return wiring.get_services().get_or_build(_build_alias_acceptor, alias)


def _build_alias_acceptor(services: Services, alias: str) -> WebSocketAcceptor:
    return build_websocket_acceptor(get_transport_services(alias), services.settings.servers[alias].path)


def build_websocket_acceptor(services: TransportServices, path: str) -> WebSocketAcceptor:
    """Build the WebSocket acceptor of a server with its endpoint at `path`."""
    make_request = DjangoRequestFactory(Consumer, alias=services.server.alias, route=f"{path}/{PATH}")
    return WebSocketAcceptor(services, make_request, DjangoContext())


class Consumer(AsyncConsumer):  # type: ignore[misc]  # Channels has no types
    """A WebSocket; `Consumer.as_asgi(server="default")` is an app for URLRouter."""

    def __init__(
        self,
        server: str = "default",
        *,
        auth: Literal["session"] | None = None,
        acceptor: WebSocketAcceptor | None = None,
    ) -> None:
        """Select the server by alias, or by `acceptor` for a server outside the settings.

        With `auth="session"` a page of this site opens the socket with its session cookie, if `MCP["AUTH"]` has
        "session". Inside Channels' `AuthMiddlewareStack` that user must be `scope["user"]`. Raises ValueError for
        another value.
        """
        if auth not in (None, "session"):
            raise ValueError(f'auth={auth!r} is invalid; use "session" or omit it')
        self._accepts_sessions = auth == "session"
        self._server = server
        self._acceptor = acceptor

    # The dispatch of the base class is not used. It handles one message at a time, with a thread switch before each
    # (`aclose_old_connections`), and joins the channel layer without need.
    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve the WebSocket until it closes."""
        acceptor = self._acceptor or get_websocket_acceptor(self._server)
        if (await receive())["type"] != "websocket.connect":
            return
        try:
            connection, subprotocol = await acceptor.accept(scope, accepts_sessions=self._accepts_sessions)
        except TransportRefusal as refusal:
            await deny_handshake(scope, send, refusal)
            return

        unprotect = wiring.get_services().lifecycle.protect_connection()
        try:
            if await _try_send(send, {"type": "websocket.accept", "subprotocol": subprotocol}):
                await _WebSocketConnection(connection, receive, send, acceptor.limits.body).run()
        finally:
            try:
                await connection.close()
            finally:
                unprotect()


class _WebSocketConnection:
    """An accepted WebSocket and its connection."""

    def __init__(self, connection: DuplexConnection, receive: Receive, send: Send, max_message_bytes: int) -> None:
        """Limit messages to `max_message_bytes` bytes."""
        self._connection = connection
        self._receive = receive
        self._send = send
        self._max_message_bytes = max_message_bytes
        self._send_deadline: asyncio.Timeout | None = None
        """Deadline of the sending task after the connection has ended."""
        connection.on_end = self._limit_sending

    async def run(self) -> None:
        """Transfer messages in both directions until the connection or the socket ends."""
        tasks = asyncio.create_task(self._receive_frames()), asyncio.create_task(self._send_messages())
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        except asyncio.CancelledError:
            # The server cancels this task, and would send 1011, the code for bugs.
            tasks[1].cancel()
            await self._send_close(CLOSE_CODES[CloseReason.SHUTDOWN])
            raise
        finally:
            self._connection.on_end = None
            for task in tasks:
                task.cancel()

    async def _receive_frames(self) -> None:
        """Receive frames until the client disconnects, without waiting for calls."""
        connection, max_bytes = self._connection, self._max_message_bytes
        while (message := await self._receive_event())["type"] != "websocket.disconnect":
            text = message.get("text")
            if text is None:
                connection.end(CloseReason.BINARY)
            elif len(text) > max_bytes or len(body := text.encode("utf-8", "surrogatepass")) > max_bytes:
                connection.end(CloseReason.OVERSIZE)
            else:
                await connection.inbound_queue.put(body)
            # Thousands of frames may be available at once: let earlier messages and other connections run.
            await asyncio.sleep(0)
        connection.end(CloseReason.CLIENT_GONE)

    async def _receive_event(self) -> MutableMapping[str, Any]:
        try:
            return await self._receive()
        except Exception as problem:
            logger.debug("A WebSocket has disconnected: %s", type(problem).__name__)
            return {"type": "websocket.disconnect"}

    async def _send_messages(self) -> None:
        """Send messages of the connection, and at its end the close frame."""
        connection = self._connection
        try:
            async with asyncio.timeout(None) as self._send_deadline:
                if connection.is_ended():
                    self._limit_sending()
                while (messages := await connection.read(READ_TIMEOUT_SECONDS)) is not None:
                    for body in messages:
                        if not await _try_send(self._send, {"type": "websocket.send", "text": body.decode()}):
                            connection.end(CloseReason.CLIENT_GONE)
                            return
        except TimeoutError:
            pass  # The client does not read.
        finally:
            self._send_deadline = None

        close_code = None if connection.close_reason is None else CLOSE_CODES.get(connection.close_reason)
        if close_code is not None:
            await self._send_close(close_code)

    async def _send_close(self, close_code: tuple[int, str]) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(CLOSE_TIMEOUT_SECONDS):
                await _send_close_frame(self._send, *close_code)

    def _limit_sending(self) -> None:
        """Limit the time to send pending messages after the connection has ended."""
        reason, deadline = self._connection.close_reason, self._send_deadline
        if deadline is not None and reason is not None:
            sends_pending = reason.sends_pending and reason is not CloseReason.SHUTDOWN
            deadline.reschedule(
                asyncio.get_running_loop().time() + (FLUSH_TIMEOUT_SECONDS if sends_pending else CLOSE_TIMEOUT_SECONDS)
            )


async def _try_send(send: Send, message: dict[str, Any]) -> bool:
    """Send an event; return False if the socket is closed.

    Each server reports that in its own way: uvicorn raises an OSError, or a RuntimeError after it has closed the socket
    itself.
    """
    try:
        await send(message)
    except Exception as problem:
        logger.debug("A WebSocket has disconnected: %s", type(problem).__name__)
        return False
    return True


async def _send_close_frame(send: Send, code: int, reason: str) -> None:
    if (
        not await _try_send(send, {"type": "websocket.close", "code": code, "reason": reason})
        and code < MIN_PRIVATE_CLOSE_CODE
    ):
        # Daphne sends only 1000 and private codes, and raises for other codes (autobahn/websocket/protocol.py,
        # sendClose).
        await _try_send(
            send, {"type": "websocket.close", "code": code - 1000 + MIN_PRIVATE_CLOSE_CODE, "reason": reason}
        )


async def deny_handshake(scope: Scope, send: Send, refusal: TransportRefusal) -> None:
    """Reject a WebSocket before it is accepted."""
    if DENIAL_EXTENSION not in (scope.get("extensions") or {}):
        await _try_send(send, {"type": "websocket.close"})
        return

    headers = [(b"content-length", b"%d" % len(refusal.body)), *build_refusal(refusal).headers]
    if await _try_send(send, {"type": f"{DENIAL_EXTENSION}.start", "status": refusal.status, "headers": headers}):
        await _try_send(send, {"type": f"{DENIAL_EXTENSION}.body", "body": refusal.body})
        # Uvicorn closes the connection at its next turn, and until then logs an error if the application returns
        # (uvicorn/protocols/websockets/websockets_sansio_impl.py, run_asgi).
        await asyncio.sleep(0)


def _build_busy_refusal(error: Overloaded) -> TransportRefusal:
    reply = build_overload_reply(error, jsonrpc.error(None, InternalError(str(error))))
    return TransportRefusal(reply.status, reply.headers, reply.body)
