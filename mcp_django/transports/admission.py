"""Admission of requests and messages: the checks that all transports share.

They lead from a request to its caller, and from a message to its call. A transport calls the steps in this order, and
makes its own checks between them:

1. `check_headers`: Host and Origin.
2. `admit_caller`: rate of the address, credential. A socket has `admit_socket`, which redeems its ticket.
3. `decode`: size and JSON of a message.
4. `check_message`: rate of the caller.
5. `create_outbox`: the messages of the call, whose era starts it (`Pipeline.handle`).

A check that belongs to every transport is added here. `ProtectedAPI` admits the callers of plain views, which have no
messages: its part is `Authenticator.authenticate_throttled`.
"""

from collections.abc import Awaitable
from typing import Any, NamedTuple

from mcp_django.auth.principal import DjangoPrincipal
from mcp_django.auth.requests import AuthRequest
from mcp_django.auth.throttling import check_address_rate, check_principal_rate
from mcp_django.protocol import jsonrpc
from mcp_django.protocol.errors import InvalidRequest
from mcp_django.protocol.headers import Headers
from mcp_django.server.calls.message_queue import Outbox
from mcp_django.server.ports import Principal
from mcp_django.transports.services import TransportServices


class AdmittedSocket(NamedTuple):
    """The caller of a socket, with the request that authenticated it."""

    principal: DjangoPrincipal
    request: AuthRequest
    """The request, in which the credential of a ticket has taken the place of the ticket."""


class Admission:
    """Checks of the requests and messages of one server."""

    __slots__ = ("_authenticator", "_executor", "_limits", "_security")

    def __init__(self, services: TransportServices) -> None:
        self._security = services.security
        self._authenticator = services.authenticator
        self._executor = services.server.ports.executor
        self._limits = services.limits

    def check_headers(self, headers: Headers) -> None:
        """Check Host and Origin (basic/transports). Raises TransportRefusal."""
        self._security.check(headers)

    async def admit_caller(self, request: AuthRequest) -> DjangoPrincipal:
        """Authenticate the caller of a request. Raises TransportRefusal, Overloaded."""
        await check_address_rate(request, self._executor)
        # A known caller needs no coroutine.
        return self._authenticator.get_cached(request) or await self._authenticator.authenticate_throttled(request)

    async def admit_socket(self, request: AuthRequest) -> AdmittedSocket:
        """Authenticate the caller of a handshake, which may carry a ticket.

        Raises TransportRefusal, Overloaded.
        """
        await check_address_rate(request, self._executor)
        if request.query:
            request = await self._authenticator.redeem_ticket(request)
        return AdmittedSocket(await self._authenticator.authenticate_throttled(request), request)

    def decode(self, body: bytes) -> Any:
        """Decode a message. Raises MCPError."""
        if len(body) > self._limits.body:
            raise InvalidRequest(f"A message may have {self._limits.body} bytes at most")
        return jsonrpc.decode(body)

    def check_message(self, raw: Any, principal: Principal) -> Awaitable[None]:
        """Count a decoded message against the rate of its caller. Raises Overloaded."""
        return check_principal_rate(principal, raw, self._executor)

    def create_outbox(self, *, can_stream: bool = True) -> Outbox:
        """Create the queue of the messages of a call.

        Without `can_stream` the client gets no message before the answer.
        """
        return Outbox(self._limits.send_buffer, can_stream, self._limits.send_timeout)
